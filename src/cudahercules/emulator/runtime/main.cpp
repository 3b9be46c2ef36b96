// The host program: reads a job from standard input, maps memory, runs the operations in order.
//
// The job is lines of words (numbers in decimal). Bytes lie in one shared memory file that the parent
// passes as a descriptor; buffers are mapped from it at the addresses that the plan states.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "state.hpp"

namespace rt {

namespace {

constexpr uint64_t most_parameters = 32764;

int memory_fd = -1;
uint8_t* blobs = nullptr;  // the whole shared file, read only
uint64_t blobs_size = 0;
std::vector<Worker*> workers;
uint64_t launches = 0;

// One line of the job, read word by word.
class Words {
 public:
  explicit Words(char* line) : at_(line) {}
  const char* word() {
    while (*at_ == ' ') at_++;
    char* begin = at_;
    while (*at_ && *at_ != ' ') at_++;
    if (*at_) *at_++ = 0;
    return begin;
  }
  uint64_t number() { return strtoull(word(), nullptr, 10); }
  // Beyond 32 bits it stays the largest: a launch of 2^32 + 1 blocks is not one of a single block.
  uint32_t small() {
    const uint64_t value = number();
    return value < UINT32_MAX ? uint32_t(value) : UINT32_MAX;
  }
  int64_t integer() { return strtoll(word(), nullptr, 10); }
  double real() { return strtod(word(), nullptr); }
  const char* rest() {
    while (*at_ == ' ') at_++;
    return at_;
  }

 private:
  char* at_;
};

// map ADDRESS SIZE FILE_OFFSET: whole pages at a fixed address. FILE_OFFSET -2: private and zero; -1: private
// and filled with poison (by default 0x7fff), a NaN in every float type, as scratch memory is not zero on a GPU either.
void map_memory(Words in) {
  const uint64_t address = in.number(), size = in.number();
  const int64_t offset = in.integer();
  const int flags = MAP_FIXED_NOREPLACE | MAP_NORESERVE | (offset < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  void* wanted = reinterpret_cast<void*>(address);
  void* at = mmap(wanted, size, PROT_READ | PROT_WRITE, flags, offset < 0 ? -1 : memory_fd, offset < 0 ? 0 : offset);
  if (at != wanted) refuse("cannot map " + std::to_string(size) + " bytes at the address that the plan states");
  if (offset == -1)
    for (uint64_t i = 0; i < size; i += 2) *reinterpret_cast<uint16_t*>(address + i) = job.scratch_poison;
}

void add_range(Words in) {  // range KIND INDEX ADDRESS SIZE WRITABLE
  Range r{};
  r.kind = *in.word();
  r.index = in.small();
  r.lo = in.number();
  r.size = in.number();
  r.writable = in.number() != 0;
  job.ranges.push_back(r);
}

void set_poison(Words in) {  // poison SHARED SCRATCH: a byte, two bytes
  job.shared_poison = uint8_t(in.small());
  job.scratch_poison = uint16_t(in.small());
}

void track(Words in) {  // track ADDRESS SIZE: memory that begins undefined
  const uint64_t address = in.number();
  watch::track(address, in.number());
}

void sort_ranges() {
  for (size_t i = 1; i < job.ranges.size(); i++)
    for (size_t j = i; j > 0 && job.ranges[j].lo < job.ranges[j - 1].lo; j--) std::swap(job.ranges[j], job.ranges[j - 1]);
}

void fill_bytes(Words in) {  // bytes ADDRESS OFFSET SIZE
  const uint64_t address = in.number(), offset = in.number(), size = in.number();
  memcpy(reinterpret_cast<void*>(address), blobs + offset, size);
  watch::host_wrote(address, size);
}

void load_module(Words in) {  // module PATH
  Module m{};
  m.path = in.rest();
  void* handle = dlopen(m.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) refuse(std::string("cannot load the translation: ") + dlerror());
  m.exports = static_cast<const Exports*>(dlsym(handle, "rt_exports"));
  if (!m.exports) refuse("the translation exports nothing");
  *m.exports->function_base = function_base + (uint64_t(job.modules.size()) << 32);
  job.modules.push_back(m);
}

void set_symbol(Words in) {  // symbol MODULE INDEX ADDRESS
  const uint32_t module = in.small(), index = in.small();
  job.modules[module].exports->symbols[index] = in.number();
}

// --- operations ----------------------------------------------------------------------------------

void check_launch(const Launch& l) {
  const uint64_t threads = uint64_t(l.block[0]) * l.block[1] * l.block[2];
  const auto name = std::string(l.kernel->name);
  if (threads == 0 || threads > 1024 || l.block[0] > 1024 || l.block[1] > 1024 || l.block[2] > 64)
    refuse("launch of " + name + ": a block of " + std::to_string(threads) + " threads");
  if (!l.grid[0] || !l.grid[1] || !l.grid[2] || l.grid[0] > 0x7fffffffu || l.grid[1] > 65535 || l.grid[2] > 65535)
    refuse("launch of " + name + ": grid dimensions that no device takes");
  if (uint64_t(l.kernel->static_shared) + l.dynamic_shared > (227u << 10))
    refuse("launch of " + name + ": more than 227 KiB of shared memory");
}

void start_workers(size_t count) {
  while (workers.size() < count) {
    workers.push_back(new Worker{});
    workers.back()->number = uint32_t(workers.size() - 1);
  }
}

struct Share {
  Worker* worker;
  Launch* launch;
  pthread_t thread;
};

void* run_share(void* argument) {
  const auto* share = static_cast<Share*>(argument);
  install_signal_handlers(*share->worker);
  work(*share->worker, *share->launch);
  remove_signal_stack(*share->worker);
  return nullptr;
}

void run_on_all(Launch& l, size_t count) {
  start_workers(count);
  std::vector<Share> shares(count);
  for (size_t i = 1; i < count; i++) {
    shares[i] = {workers[i], &l, {}};
    if (pthread_create(&shares[i].thread, nullptr, run_share, &shares[i])) refuse("cannot start a thread");
  }
  work(*workers[0], l);
  for (size_t i = 1; i < count; i++) pthread_join(shares[i].thread, nullptr);
}

// The launch's cluster dimensions are those of the plan, or those that the kernel was compiled for.
void set_cluster(Launch& l) {
  const auto name = std::string(l.kernel->name);
  const uint32_t* fixed = l.kernel->cluster;
  l.explicit_cluster = l.cluster[0] || fixed[0];
  if (l.cluster[0] && fixed[0] && memcmp(l.cluster, fixed, sizeof l.cluster))
    refuse("launch of " + name + ": other cluster dimensions than those that the kernel was compiled for");
  l.clusters = 1;
  uint64_t size = 1;
  for (int i = 0; i < 3; i++) {
    if (fixed[0]) l.cluster[i] = fixed[i];
    if (!l.cluster[i]) l.cluster[i] = 1;
    size *= l.cluster[i];
    if (l.grid[i] % l.cluster[i]) refuse("launch of " + name + ": the grid is no multiple of the cluster");
    l.nclusterid[i] = l.grid[i] / l.cluster[i];
    l.clusters *= l.nclusterid[i];
  }
  if (size > 16) refuse("launch of " + name + ": a cluster of " + std::to_string(size) + " blocks");
  l.cluster_size = uint32_t(size);
}

// launch OPERATION MODULE GRID*3 BLOCK*3 CLUSTER*3 SHARED COOPERATIVE OFFSET SIZE KERNEL
void launch(Words in) {
  Launch l{};
  l.operation = in.small();
  l.module = in.small();
  for (uint32_t& g : l.grid) g = in.small();
  for (uint32_t& b : l.block) b = in.small();
  for (uint32_t& c : l.cluster) c = in.small();
  l.dynamic_shared = in.small();
  l.cooperative = in.number() != 0;
  const uint64_t offset = in.number(), size = in.number();
  const std::string name = in.rest();
  if (l.module >= job.modules.size()) refuse("a launch names a module that does not exist");
  const Exports& m = *job.modules[l.module].exports;
  for (uint32_t i = 0; i < m.kernel_count; i++)
    if (name == m.kernels[i].name) l.kernel = &m.kernels[i];
  if (!l.kernel) refuse("kernel " + name + " does not exist in its module");
  if (size < l.kernel->parameter_bytes || size > most_parameters)
    refuse("launch of " + name + ": " + std::to_string(size) + " bytes of parameters, not " +
           std::to_string(l.kernel->parameter_bytes));
  check_launch(l);
  set_cluster(l);
  job.parameter_bytes = size;
  memcpy(job.parameters.data(), blobs + offset, size);
  job.workspace.assign(job.workspace.size(), 0);
  job.workspace[0] = uint32_t(job.workspace.size() * sizeof(uint32_t));
  l.grid_id = ++launches;
  run_on_all(l, job.threads < l.clusters ? job.threads : l.clusters);
}

void set_memory(Words in) {  // memset ADDRESS VALUE ELEMENT WIDTH HEIGHT PITCH
  const uint64_t address = in.number(), value = in.number(), element = in.number();
  const uint64_t width = in.number(), height = in.number(), pitch = in.number();
  for (uint64_t row = 0; row < height; row++) {
    auto* at = reinterpret_cast<uint8_t*>(address + row * pitch);
    watch::host_wrote(address + row * pitch, width * element);
    if (element == 1) {
      memset(at, int(value), width);
      continue;
    }
    for (uint64_t i = 0; i < width; i++) memcpy(at + i * element, &value, element);
  }
}

void copy_memory(Words in) {  // copy DESTINATION SOURCE WIDTH HEIGHT DESTINATION_PITCH SOURCE_PITCH
  const uint64_t destination = in.number(), source = in.number(), width = in.number(), height = in.number();
  const uint64_t destination_pitch = in.number(), source_pitch = in.number();
  for (uint64_t row = 0; row < height; row++) {
    memmove(reinterpret_cast<void*>(destination + row * destination_pitch),
            reinterpret_cast<const void*>(source + row * source_pitch), width);
    watch::host_wrote(destination + row * destination_pitch, width);
  }
}

void begin(Words in) {  // job MEMORY_FD RESULT_FD MEMORY_BYTES THREADS SECONDS STACK_LIMIT ASYNCHRONY SEED
  memory_fd = int(in.integer());
  job.result_fd = int(in.integer());
  blobs_size = in.number();
  job.threads = in.small();
  job.deadline = seconds_now() + in.real();
  const uint64_t stack_limit = in.number();
  job.stack_limit = uint32_t(stack_limit < (512u << 10) ? stack_limit : 512u << 10);
  job.asynchrony = Asynchrony(in.small());
  job.seed = in.number();
  fcntl(job.result_fd, F_SETFD, FD_CLOEXEC);
  void* at = mmap(nullptr, blobs_size, PROT_READ, MAP_SHARED, memory_fd, 0);
  if (at == MAP_FAILED) refuse("cannot map the job's memory");
  blobs = static_cast<uint8_t*>(at);
  job.workspace.resize(64);
  job.ranges.push_back({reinterpret_cast<uint64_t>(job.workspace.data()), job.workspace.size() * 4, true, 'w', 0});
  start_workers(1);
  this_worker = workers[0];
  install_signal_handlers(*workers[0]);
}

std::string read_all(int fd) {
  std::string text;
  char buffer[1 << 16];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, size_t(n));
  return text;
}

}  // namespace

void run_job() {
  std::string text = read_all(STDIN_FILENO);
  double started = seconds_now();
  for (char* line = text.data(); *line;) {
    char* end = strchrnul(line, '\n');
    char* next = *end ? end + 1 : end;
    *end = 0;
    Words in(line);
    const std::string word = in.word();
    if (word == "job") begin(in);
    else if (word == "map") map_memory(in);
    else if (word == "range") add_range(in);
    else if (word == "poison") set_poison(in);
    else if (word == "track") track(in);
    else if (word == "bytes") fill_bytes(in);
    else if (word == "module") load_module(in);
    else if (word == "symbol") set_symbol(in);
    else if (word == "ready") sort_ranges(), started = seconds_now();
    else if (word == "launch") launch(in);
    else if (word == "memset") set_memory(in);
    else if (word == "copy") copy_memory(in);
    else refuse("unknown line in the job: " + word);
    line = next;
  }
  uint64_t instructions = 0, threads = 0, blocks = 0;
  for (const Worker* w : workers) {
    instructions += w->instructions;
    threads += w->threads_run;
    blocks += w->blocks_run;
  }
  finish(instructions, threads, blocks, seconds_now() - started);
}

}  // namespace rt

int main() { rt::run_job(); }
