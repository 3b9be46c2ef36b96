// The host program: reads a job from standard input, maps memory, runs the operations in order.
//
// The job is lines of words (numbers in decimal). Bytes lie in one shared memory file that the parent
// passes as a descriptor; buffers are mapped from it at the addresses that the plan states.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <iostream>
#include <sstream>
#include <thread>

#include "state.hpp"

using namespace rt;

namespace {

constexpr uint64_t page = 4096;
constexpr uint64_t most_parameters = 32764;

int memory_fd = -1;
uint8_t* blobs = nullptr;  // the whole shared file, read only
uint64_t blobs_size = 0;
std::deque<Worker> workers;
uint64_t launches = 0;

// map ADDRESS SIZE FILE_OFFSET: whole pages at a fixed address. FILE_OFFSET -2: private and zero; -1: private
// and filled with 0x7fff, a NaN in every float type, as scratch memory is not zero on a GPU either.
void map_memory(std::istream& in) {
  uint64_t address, size;
  int64_t offset;
  in >> address >> size >> offset;
  const int flags = MAP_FIXED_NOREPLACE | MAP_NORESERVE | (offset < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  void* wanted = reinterpret_cast<void*>(address);
  void* at = mmap(wanted, size, PROT_READ | PROT_WRITE, flags, offset < 0 ? -1 : memory_fd, offset < 0 ? 0 : offset);
  if (at != wanted) refuse("cannot map " + std::to_string(size) + " bytes at the address that the plan states");
  if (offset == -1) std::fill_n(static_cast<uint16_t*>(at), size / 2, uint16_t(0x7fff));
}

void add_range(std::istream& in) {
  Range r{};
  in >> r.kind >> r.index >> r.lo >> r.size >> r.writable;
  job.ranges.push_back(r);
}

void fill_bytes(std::istream& in) {  // bytes ADDRESS OFFSET SIZE
  uint64_t address, offset, size;
  in >> address >> offset >> size;
  memcpy(reinterpret_cast<void*>(address), blobs + offset, size);
}

// One module file may serve two modules with the same text, each with its own symbols: the loader
// knows files by inode, so the second time it gets a copy.
void* open_library(const std::string& path) {
  const bool again = std::any_of(job.modules.begin(), job.modules.end(), [&](const Module& m) { return m.path == path; });
  if (!again) return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const int from = open(path.c_str(), O_RDONLY | O_CLOEXEC), to = memfd_create("module", MFD_CLOEXEC);
  char buffer[1 << 16];
  for (ssize_t n; (n = read(from, buffer, sizeof buffer)) > 0;)
    if (write(to, buffer, size_t(n)) != n) refuse("cannot copy a translation");
  close(from);
  return dlopen(("/proc/self/fd/" + std::to_string(to)).c_str(), RTLD_NOW | RTLD_LOCAL);
}

void load_module(std::istream& in) {  // module PATH
  Module m{};
  in >> std::ws;
  std::getline(in, m.path);
  void* handle = open_library(m.path);
  if (!handle) refuse(std::string("cannot load the translation: ") + dlerror());
  m.exports = static_cast<const Exports*>(dlsym(handle, "rt_exports"));
  if (!m.exports) refuse("the translation exports nothing");
  *m.exports->function_base = function_base + (uint64_t(job.modules.size()) << 32);
  job.modules.push_back(m);
}

void set_symbol(std::istream& in) {  // symbol MODULE INDEX ADDRESS
  uint32_t module, index;
  uint64_t address;
  in >> module >> index >> address;
  job.modules[module].exports->symbols[index] = address;
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
    workers.emplace_back();
    Worker& w = workers.back();
    w.number = uint32_t(workers.size() - 1);
  }
}

void run_on_all(Launch& l, size_t count) {
  start_workers(count);
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; i++)
    threads.emplace_back([&l, i] {
      install_signal_handlers(workers[i]);
      work(workers[i], l);
      munmap(workers[i].signal_stack, 128 << 10);
    });
  work(workers[0], l);
  for (auto& t : threads) t.join();
}

// launch OPERATION MODULE GRID*3 BLOCK*3 SHARED COOPERATIVE OFFSET SIZE KERNEL
void launch(std::istream& in) {
  Launch l;
  uint64_t offset, size;
  std::string name;
  in >> l.operation >> l.module >> l.grid[0] >> l.grid[1] >> l.grid[2] >> l.block[0] >> l.block[1] >> l.block[2] >>
      l.dynamic_shared >> l.cooperative >> offset >> size >> name;
  if (l.module >= job.modules.size()) refuse("a launch names a module that does not exist");
  const Exports& m = *job.modules[l.module].exports;
  l.kernel = std::find_if(m.kernels, m.kernels + m.kernel_count, [&](const KernelEntry& k) { return name == k.name; });
  if (l.kernel == m.kernels + m.kernel_count) refuse("kernel " + name + " does not exist in its module");
  if (size < l.kernel->parameter_bytes || size > most_parameters)
    refuse("launch of " + name + ": " + std::to_string(size) + " bytes of parameters, not " +
           std::to_string(l.kernel->parameter_bytes));
  check_launch(l);
  job.parameter_bytes = size;
  memcpy(job.parameters.data(), blobs + offset, size);
  std::fill(job.workspace.begin(), job.workspace.end(), 0);
  job.workspace[0] = uint32_t(job.workspace.size() * sizeof(uint32_t));
  l.blocks = uint64_t(l.grid[0]) * l.grid[1] * l.grid[2];
  l.grid_id = ++launches;
  run_on_all(l, std::min<uint64_t>(job.threads, l.blocks));
}

void set_memory(std::istream& in) {  // memset ADDRESS VALUE ELEMENT WIDTH HEIGHT PITCH
  uint64_t address, value, element, width, height, pitch;
  in >> address >> value >> element >> width >> height >> pitch;
  for (uint64_t row = 0; row < height; row++) {
    auto* at = reinterpret_cast<uint8_t*>(address + row * pitch);
    if (element == 1) {
      memset(at, int(value), width);
      continue;
    }
    for (uint64_t i = 0; i < width; i++) memcpy(at + i * element, &value, element);
  }
}

void copy_memory(std::istream& in) {  // copy DESTINATION SOURCE WIDTH HEIGHT DESTINATION_PITCH SOURCE_PITCH
  uint64_t destination, source, width, height, destination_pitch, source_pitch;
  in >> destination >> source >> width >> height >> destination_pitch >> source_pitch;
  for (uint64_t row = 0; row < height; row++)
    memmove(reinterpret_cast<void*>(destination + row * destination_pitch),
            reinterpret_cast<const void*>(source + row * source_pitch), width);
}

void begin(std::istream& in) {  // job MEMORY_FD RESULT_FD MEMORY_BYTES THREADS SECONDS STACK_LIMIT
  double seconds;
  in >> memory_fd >> job.result_fd >> blobs_size >> job.threads >> seconds >> job.stack_limit;
  fcntl(job.result_fd, F_SETFD, FD_CLOEXEC);
  job.deadline = seconds_now() + seconds;
  blobs = static_cast<uint8_t*>(mmap(nullptr, blobs_size, PROT_READ, MAP_SHARED, memory_fd, 0));
  if (blobs == MAP_FAILED) refuse("cannot map the job's memory");
  job.parameters.resize(most_parameters + 4);
  job.workspace.resize(64);
  job.stack_limit = std::min(job.stack_limit, 512u << 10);
  Range workspace{reinterpret_cast<uint64_t>(job.workspace.data()), job.workspace.size() * 4, true, 'w', 0};
  job.ranges.push_back(workspace);
  start_workers(1);
  this_worker = &workers[0];
  install_signal_handlers(workers[0]);
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  std::string line, word;
  double started = seconds_now();
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    in >> word;
    if (word == "job") begin(in);
    else if (word == "map") map_memory(in);
    else if (word == "range") add_range(in);
    else if (word == "bytes") fill_bytes(in);
    else if (word == "module") load_module(in);
    else if (word == "symbol") set_symbol(in);
    else if (word == "ready") {
      std::sort(job.ranges.begin(), job.ranges.end(), [](const Range& a, const Range& b) { return a.lo < b.lo; });
      started = seconds_now();
    }
    else if (word == "launch") launch(in);
    else if (word == "memset") set_memory(in);
    else if (word == "copy") copy_memory(in);
    else refuse("unknown line in the job: " + word);
  }
  uint64_t instructions = 0, threads = 0, blocks = 0;
  for (const Worker& w : workers) {
    instructions += w.instructions;
    threads += w.threads_run;
    blocks += w.blocks_run;
  }
  finish(instructions, threads, blocks, seconds_now() - started);
}
