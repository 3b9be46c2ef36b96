// What a translated kernel sees of the runtime. Included in every translation: keep it light.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "watch.hpp"

namespace rt {

struct Worker;
struct Block;
struct Warp;
struct AsyncQueue;

// The memory that one load or store site touched last: [lo, lo + limit << log2(access size)).
struct Slot {
  uint64_t lo;
  uint64_t limit;
};

// Why a thread does not run; used in reports.
enum class Wait : uint8_t { none, barrier, lanes, activemask, yielded, mbarrier, cluster, warpgroup };

// One CUDA thread. What translated code touches comes first, what only Hopper's programs use last: all others
// stay within two cache lines.
struct alignas(64) Thread {
  int64_t fuel;
  Worker* worker;
  Block* block;
  uint8_t* local;        // top of the local memory in use
  uint8_t* local_begin;  // local memory of this thread
  uint8_t* local_end;
  uintptr_t stack_floor;  // machine stack below this line is kept for the runtime
  uint64_t count;         // dynamic instructions (counting build)
  uint32_t tid[3];
  uint32_t linear;
  uint32_t lane;
  uint32_t site;
  Warp* warp;
  AsyncQueue* async;
  void* sp;
  uint32_t stack;  // index of the stack in the worker's pool
  uint32_t value;  // what a barrier or activemask hands to the thread that it wakes
  uint32_t detail;
  Wait wait;
  bool cluster_arrived;  // has arrived at the cluster's barrier and not yet waited
  bool asynchronous;     // what follows is in use
  uint32_t cluster_phase;
  uint32_t bulk_group;    // number of the bulk group that is open
  uint32_t polls;         // waits on `awaited` that ended without success, with nothing done in between
  int64_t poll_fuel;
  uint8_t* awaited;       // the mbarrier that this thread waits for, or waited for last
};

struct Block {
  uint8_t* shared;
  uint32_t shared_size;
  uint32_t shared_dynamic;  // bytes
  uint32_t ctaid[3];
  uint32_t ntid[3];
  uint32_t nctaid[3];
  uint64_t grid_id;
  uint64_t grid_workspace;
  uint32_t shared_base;  // window address of the first byte of user shared memory: shared_origin | rank << 24
  uint32_t cluster_rank, cluster_size;
  uint32_t cluster_ctaid[3], cluster_nctaid[3], clusterid[3], nclusterid[3];
  bool explicit_cluster;
};

Slot* slots_of(Thread& t);

using KernelCode = void (*)(Thread&, const uint8_t* parameters);
using FunctionCode = void (*)(Thread&, uint8_t* const* arguments);

struct KernelEntry {
  const char* name;
  KernelCode code;
  uint32_t static_shared;
  uint32_t parameter_bytes;
  uint32_t local_bytes;  // of this kernel and all device functions of the module, each once
  uint32_t cluster[3];   // cluster dimensions fixed at compile time, or 0
};
struct FunctionEntry {
  FunctionCode code;
  uint64_t signature;
};
// What a translation exports, under the name rt_exports.
struct Exports {
  const KernelEntry* kernels;
  uint32_t kernel_count;
  const FunctionEntry* functions;
  uint32_t function_count;
  uint64_t* symbols;         // addresses of module variables, set by the host
  uint64_t* function_base;   // handle of function 0, set by the host
  uint32_t site_count;
};

// User shared memory begins here: the first kilobyte of the window belongs to the system.
constexpr uint32_t shared_origin = 1024;
// The last bytes of the system part, which cooperative groups use for tiles of several warps.
constexpr uint32_t reserved_shared = 288;
constexpr uint32_t strong_load_fuel = 512, atomic_fuel = 64, fence_fuel = 64, sleep_fuel = 16384,
                   polling_fuel = 32768;

// How memory is accessed. Strong accesses are volatile or have an order of their own; quiet ones are not told to
// the checking build here, since they are part of something that it is told of.
enum Access : uint32_t { access_read = 0, access_write = 1, access_atomic = 2, access_kind = 3, access_strong = 4, access_quiet = 8 };

// Out of line: checks the address in the buffer table, fills the slot, or ends the run with a fault.
void resolve(Thread& t, Slot& slot, uint64_t address, uint32_t size, uint32_t site, uint32_t access, bool generic);
[[noreturn]] void fault_shared(Thread& t, uint64_t offset, uint32_t size, uint32_t site, uint32_t access);
[[noreturn]] void fault_local(Thread& t, uint64_t address, uint32_t size, uint32_t site, uint32_t access);
[[noreturn]] void fault_stack(Thread& t, uint32_t site);
[[noreturn]] void fault_trap(Thread& t, uint32_t site);
[[noreturn]] void fault_branch(Thread& t, uint32_t site, uint64_t index);
[[noreturn]] void exit_thread(Thread& t);
void yield(Thread& t, uint32_t site);

constexpr unsigned log2_of(unsigned n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }

template <unsigned N>
static inline __attribute__((always_inline)) uint8_t* global_at(Thread& t, Slot* slots, uint64_t address, uint32_t site,
                                                                uint32_t access, bool generic) {
  constexpr unsigned k = log2_of(N);
  Slot& slot = slots[site];
  // Rotating the offset moves misaligned bits to the top: one comparison checks range and alignment.
  const uint64_t offset = address - slot.lo;
  const uint64_t element = k ? (offset >> k | offset << ((64 - k) & 63)) : offset;
  if (__builtin_expect(element >= slot.limit, 0)) resolve(t, slot, address, N, site, access, generic);
  watch::access(t, reinterpret_cast<uint8_t*>(address), N, site, access);
  return reinterpret_cast<uint8_t*>(address);
}

// `offset` counts from the start of user shared memory.
template <unsigned N>
static inline __attribute__((always_inline)) uint8_t* shared_at(Thread& t, uint8_t* shared, uint32_t size, uint32_t offset,
                                                                uint32_t site, uint32_t access) {
  constexpr unsigned k = log2_of(N);
  const uint32_t element = k ? (offset >> k | offset << ((32 - k) & 31)) : offset;
  if (__builtin_expect(element >= size >> k, 0)) fault_shared(t, offset, N, site, access);
  watch::access(t, shared + offset, N, site, access);
  return shared + offset;
}

template <unsigned N>
static inline __attribute__((always_inline)) uint8_t* local_at(Thread& t, uint64_t address, uint32_t site, uint32_t access) {
  const uint64_t begin = reinterpret_cast<uint64_t>(t.local_begin);
  const uint64_t used = reinterpret_cast<uint64_t>(t.local) - begin;
  if (__builtin_expect(address - begin + N > used || address - begin >= used || (address & (N - 1)), 0))
    fault_local(t, address, N, site, access);
  return reinterpret_cast<uint8_t*>(address);
}

static inline __attribute__((always_inline)) uintptr_t stack_pointer() {
  uintptr_t sp;
  asm volatile("movq %%rsp, %0" : "=r"(sp));
  return sp;
}

// Local memory of one call; `frame` is what to restore on return.
static inline __attribute__((always_inline)) uint8_t* enter(Thread& t, size_t local_bytes, uint32_t site) {
  uint8_t* const frame = t.local;
  if (__builtin_expect(stack_pointer() < t.stack_floor ||
                           static_cast<size_t>(t.local_end - frame) < local_bytes,
                       0))
    fault_stack(t, site);
  t.local = frame + local_bytes;
  return frame;
}

// Room on the stack of local memory (alloca), given back when the function returns.
static inline uint64_t allocate(Thread& t, uint64_t bytes, uint64_t alignment, uint32_t site) {
  const uint64_t step = alignment < 16 ? 16 : alignment;
  const uint64_t begin = (reinterpret_cast<uint64_t>(t.local) + step - 1) / step * step;
  const auto end = reinterpret_cast<uint64_t>(t.local_end);
  if (begin > end || bytes > end - begin) fault_stack(t, site);
  t.local = reinterpret_cast<uint8_t*>(begin + (bytes + 15) / 16 * 16 < end ? begin + (bytes + 15) / 16 * 16 : end);
  return begin;
}

static inline void restore(Thread& t, uint64_t saved, uint32_t site) {
  if (saved - reinterpret_cast<uint64_t>(t.local_begin) > static_cast<uint64_t>(t.local - t.local_begin)) fault_stack(t, site);
  t.local = reinterpret_cast<uint8_t*>(saved);
}

static inline __attribute__((always_inline)) void burn(Thread& t, int64_t fuel, uint32_t site) {
  if (__builtin_expect((t.fuel -= fuel) < 0, 0)) yield(t, site);
}

// Sleeping is waiting: it does not count as something done between two looks at an mbarrier.
static inline void sleep(Thread& t, uint32_t site) {
  const int64_t done = t.poll_fuel - t.fuel;
  burn(t, sleep_fuel, site);
  t.poll_fuel = t.fuel + done;
}

template <class T>
static inline __attribute__((always_inline)) T load(const uint8_t* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
static inline __attribute__((always_inline)) void store(uint8_t* at, T value) {
  __builtin_memcpy(at, &value, sizeof value);
}
// Strong accesses: ordered, and really performed each time.
template <class T>
static inline T load_strong(const uint8_t* at) {
  return __atomic_load_n(reinterpret_cast<const T*>(at), __ATOMIC_ACQUIRE);
}
template <class T>
static inline void store_strong(uint8_t* at, T value) {
  __atomic_store_n(reinterpret_cast<T*>(at), value, __ATOMIC_RELEASE);
}

// --- other threads -----------------------------------------------------------------------------

// Lanes of one warp that execute an instruction together. Each lane's operands and results are one
// struct on its own stack; a pure function reads and writes them all when the last lane arrives.
struct Lanes {
  uint32_t active;
  void* lane[32];
};
using Collective = void (*)(const Lanes&);

struct Shuffle {
  uint32_t a, b, c, d;
  bool p;
};
struct Vote {
  uint32_t d;
  bool a;
};
struct Match {
  uint64_t a;
  uint32_t d;
  bool p;
};
struct Reduce {
  uint32_t a, d;
};
void shuffle_up(const Lanes&);
void shuffle_down(const Lanes&);
void shuffle_bfly(const Lanes&);
void shuffle_idx(const Lanes&);
void vote_all(const Lanes&);
void vote_any(const Lanes&);
void vote_uni(const Lanes&);
void vote_ballot(const Lanes&);
void match_any(const Lanes&);
void match_all(const Lanes&);
void redux_add(const Lanes&);
void redux_min_s32(const Lanes&);
void redux_max_s32(const Lanes&);
void redux_min_u32(const Lanes&);
void redux_max_u32(const Lanes&);
void redux_and(const Lanes&);
void redux_or(const Lanes&);
void redux_xor(const Lanes&);
void redux_min_f32(const Lanes&);
void redux_max_f32(const Lanes&);
void redux_min_nan_f32(const Lanes&);
void redux_max_nan_f32(const Lanes&);
void redux_min_abs_f32(const Lanes&);
void redux_max_abs_f32(const Lanes&);
void redux_min_abs_nan_f32(const Lanes&);
void redux_max_abs_nan_f32(const Lanes&);
void elect(const Lanes&);
void warp_sync(const Lanes&);

// Waits until every living lane of `mask` has arrived with the same function, which then runs once.
void together(Thread& t, uint32_t mask, Collective function, void* operands, uint32_t site);
uint32_t activemask(Thread& t, uint32_t site);

enum class Join : uint32_t { sync, arrive, popc, all, any };
// `count` is the number of threads taking part, 0 for the whole block. Gives the reduction's result.
uint32_t barrier(Thread& t, uint32_t id, uint32_t count, Join join, bool predicate, bool aligned, uint32_t site);

void async_copy(Thread& t, uint8_t* to, const uint8_t* from, uint32_t size, uint32_t bytes, uint32_t site);
void async_commit(Thread& t);
void async_wait(Thread& t, uint64_t groups_left);
void async_wait_all(Thread& t);
void async_arrive(Thread& t, uint8_t* barrier, bool count_first, uint32_t site);
const uint8_t* async_source(Thread& t, uint64_t address, uint32_t bytes, uint32_t site);

// --- the rest ----------------------------------------------------------------------------------

FunctionCode function_at(Thread& t, uint64_t address, uint64_t signature, uint32_t site);
uint32_t print(Thread& t, uint64_t format, uint64_t arguments, uint32_t site);
[[noreturn]] void assertion_failed(Thread& t, uint64_t message, uint64_t file, uint32_t line, uint64_t function,
                                   uint32_t site);
bool in_constant_memory(uint64_t address);
bool in_parameters(Thread& t, uint64_t address);
uint32_t worker_number(Thread& t);
uint64_t nanoseconds();
static inline uint64_t cycles() { return __builtin_ia32_rdtsc(); }

// A 64-bit shared address as an offset that is certainly outside if it does not fit.
static inline uint32_t narrow(uint64_t offset) { return offset >> 32 ? 0xffffffffu : uint32_t(offset); }

static inline bool in_shared_of(const Block& b, uint64_t a) {
  return a - (reinterpret_cast<uint64_t>(b.shared) - reserved_shared) < b.shared_size + reserved_shared;
}
static inline bool in_shared(Thread& t, uint64_t a) { return in_shared_of(*t.block, a); }
static inline bool in_local(Thread& t, uint64_t a) {
  return a - reinterpret_cast<uint64_t>(t.local_begin) < static_cast<uint64_t>(t.local_end - t.local_begin);
}

}  // namespace rt
