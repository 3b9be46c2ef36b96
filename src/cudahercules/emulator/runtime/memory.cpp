// The buffer table, and the slow path of every load, store and atomic.
#include <ctime>

#include "state.hpp"

namespace rt {

Job job;

double seconds_now() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return double(ts.tv_sec) + 1e-9 * double(ts.tv_nsec);
}

uint64_t nanoseconds() {
  timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  return uint64_t(ts.tv_sec) * 1'000'000'000ull + uint64_t(ts.tv_nsec);
}

uint32_t worker_number(Thread& t) { return t.worker->number; }

// The range that holds `address`, or null.
const Range* find_range(uint64_t address) {
  size_t first = 0, last = job.ranges.size();  // the first range behind `address` is in [first, last]
  while (first < last) {
    const size_t middle = (first + last) / 2;
    if (address < job.ranges[middle].lo)
      last = middle;
    else
      first = middle + 1;
  }
  if (!first) return nullptr;
  const Range& r = job.ranges[first - 1];
  return address - r.lo < r.size ? &r : nullptr;
}

bool in_constant_memory(uint64_t address) {
  const Range* r = find_range(address);
  return r && r->kind == 'c';
}

bool in_parameters(Thread&, uint64_t address) {
  return address - reinterpret_cast<uint64_t>(job.parameters.data()) < job.parameter_bytes;
}

namespace {

std::string access_fields(uint64_t address, uint32_t size, uint32_t access, const char* space) {
  return "\"address\":" + std::to_string(address) + ",\"size\":" + std::to_string(size) +
         ",\"access\":" + std::to_string(access & access_kind) + ",\"space\":\"" + space + "\"";
}

[[noreturn]] void misaligned(Thread& t, uint64_t address, uint32_t size, uint32_t site, uint32_t access,
                             const char* space) {
  fault(t, site, "misaligned", access_fields(address, size, access, space));
}

}  // namespace

void resolve(Thread& t, Slot& slot, uint64_t address, uint32_t size, uint32_t site, uint32_t access, bool generic) {
  if (generic) {
    // What cooperative groups keep in the system's part of shared memory.
    const uint64_t reserved = reinterpret_cast<uint64_t>(t.block->shared) - reserved_shared;
    if (address - reserved < reserved_shared && address - reserved + size <= reserved_shared && address % size == 0) return;
    // Windows of this block and this thread: small, and not worth a slot that others share.
    const uint64_t in_window = address - reinterpret_cast<uint64_t>(t.block->shared);
    if (in_window < t.block->shared_size) {
      if (address % size) misaligned(t, in_window, size, site, access, "shared");
      if (in_window + size > t.block->shared_size) fault_shared(t, in_window, size, site, access);
      // In a cluster another block may come here with this address after the block has exited.
      if (t.block->cluster_size == 1) slot = {reinterpret_cast<uint64_t>(t.block->shared), t.block->shared_size / size};
      return;
    }
    if (t.block->cluster_size > 1 && peer_at(t, address, size, site, access)) return;
    if (in_local(t, address)) {
      local_at<1>(t, address, site, access);
      if (address % size) misaligned(t, address, size, site, access, "local");
      local_at<1>(t, address + size - 1, site, access);
      return;
    }
    if (in_parameters(t, address)) {
      const uint64_t offset = address - reinterpret_cast<uint64_t>(job.parameters.data());
      if (address % size) misaligned(t, address, size, site, access, "param");
      if ((access & access_kind) == access_read && offset + size <= job.parameter_bytes) return;
      fault(t, site, "out_of_bounds", access_fields(offset, size, access, "param"));
    }
  }
  const Range* r = find_range(address);
  if (!r) fault(t, site, "out_of_bounds", access_fields(address, size, access, "global"));
  if (address % size) misaligned(t, address, size, site, access, "global");
  if (address - r->lo + size > r->size || ((access & access_kind) != access_read && !r->writable))
    fault(t, site, "out_of_bounds", access_fields(address, size, access, "global"));
  if (r->lo % size == 0) slot = {r->lo, r->size / size};
}

void fault_shared(Thread& t, uint64_t offset, uint32_t size, uint32_t site, uint32_t access) {
  const uint32_t rank = uint32_t(offset + t.block->shared_base) >> 24;
  if (rank != t.block->cluster_rank && rank < t.block->cluster_size)
    fault(t, site, "cluster_misuse",
          "\"detail\":" + quoted("an address of block " + std::to_string(rank) +
                                 " of the cluster where shared::cta is accessed (shared::cluster is needed)"));
  const auto signed_offset = static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(offset)));
  const bool inside = offset + size <= t.block->shared_size;
  fault(t, site, inside ? "misaligned" : "out_of_bounds",
        "\"offset\":" + std::to_string(signed_offset) + ",\"size\":" + std::to_string(size) +
            ",\"access\":" + std::to_string(access & access_kind) + ",\"space\":\"shared\",\"limit\":" +
            std::to_string(t.block->shared_size) + ",\"dynamic\":" + std::to_string(t.block->shared_dynamic));
}

void fault_local(Thread& t, uint64_t address, uint32_t size, uint32_t site, uint32_t access) {
  const auto begin = reinterpret_cast<uint64_t>(t.local_begin);
  const auto used = static_cast<uint64_t>(t.local - t.local_begin);
  const uint64_t offset = address - begin;
  const bool inside = offset < used && offset + size <= used;
  fault(t, site, inside ? "misaligned" : "out_of_bounds",
        "\"offset\":" + std::to_string(static_cast<int64_t>(offset)) + ",\"size\":" + std::to_string(size) +
            ",\"access\":" + std::to_string(access & access_kind) + ",\"space\":\"local\",\"limit\":" + std::to_string(used));
}

FunctionCode function_at(Thread& t, uint64_t address, uint64_t signature, uint32_t site) {
  const uint64_t offset = address - function_base;
  const uint64_t module = offset >> 32, index = (offset & 0xffffffff) / 16;
  if (address >= function_base && module == t.worker->launch->module && offset % 16 == 0) {
    const Exports& m = *job.modules[module].exports;
    if (index < m.function_count && m.functions[index].code) {
      if (m.functions[index].signature == signature) return m.functions[index].code;
      fault(t, site, "invalid_function",
            "\"detail\":\"the function behind the pointer takes other parameters\",\"address\":" + std::to_string(address));
    }
  }
  fault(t, site, "invalid_function", "\"address\":" + std::to_string(address));
}

// A zero-terminated string in memory that the kernel may read.
bool device_string(uint64_t address, std::string& out) {
  const Range* r = find_range(address);
  if (!r) return false;
  for (uint64_t a = address; a < r->lo + r->size; a++) {
    const char c = *reinterpret_cast<const char*>(a);
    if (!c) return true;
    if (out.size() > 4096) return true;
    out.push_back(c);
  }
  return false;
}

}  // namespace rt
