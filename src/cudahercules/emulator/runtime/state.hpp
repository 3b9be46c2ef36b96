// The runtime's own view of its threads, warps, blocks, workers and the job.
#pragma once
#include <pthread.h>

#include <string>
#include <vector>

#include "bulk.hpp"
#include "cluster.hpp"
#include "device.hpp"
#include "mbarrier.hpp"

namespace rt {

constexpr int64_t full_fuel = 65536;
constexpr uint32_t all_lanes = 0xffffffffu;
constexpr uint32_t no_site = 0xffffffffu;

struct Pending {
  uint32_t mask;
  Collective function;
  Lanes lanes;
};

struct Warpgroup;

struct Warp {
  uint32_t index;
  uint32_t alive, runnable, fresh, yielded, asking;
  uint32_t patience;
  Thread* threads;
  std::vector<Pending> pending;
};

struct Cluster;

struct Barrier {
  uint32_t arrived, expected, popc, all, any;
  bool reducing;
  uint32_t warps;  // bit set of warps with an entry below
  uint32_t waiting[32], came[32], site[32];
};

// A block with everything that runs it; pooled by its worker.
struct Resident : Block {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Barrier barriers[16];
  uint32_t used_barriers;  // bit set
  uint32_t ready;          // bit set of warps with runnable or asking lanes
  uint32_t alive;
  uint32_t yielded_warps;
  uint64_t progress;
  size_t window;  // bytes of the shared window
  Cluster* cluster;
  bool begun;                              // one of its threads has run
  std::vector<Thread*> mbarrier_waiters;   // threads that wait on an mbarrier in this block's shared memory
  std::vector<Warpgroup*> warpgroups;  // those that have used wgmma
  [[no_unique_address]] watch::OfBlock watched;
};

// The blocks of a cluster, resident together on one worker; a block without a cluster is a cluster of one.
struct Cluster {
  std::vector<Resident*> blocks;
  uint32_t alive;    // threads
  uint32_t arrived;  // living threads that have arrived at the phase of barrier.cluster
  uint32_t phase;
  uint32_t idle;       // rounds in which every thread only burnt fuel
  uint64_t events;     // whatever may let a waiting thread go on
  uint64_t random;     // state of the generator
  BulkQueue* bulk;     // null until the first asynchronous copy
  [[no_unique_address]] watch::OfCluster watched;
};

struct Range {
  uint64_t lo, size;
  bool writable;
  char kind;  // b buffer, s symbol, c constant symbol, p kernel parameters, w grid workspace
  uint32_t index;
};

struct Module {
  std::string path;
  const Exports* exports;
};

struct Launch {
  uint32_t module;
  const KernelEntry* kernel;
  uint32_t operation;
  uint32_t grid[3], block[3];
  uint32_t dynamic_shared;
  bool cooperative;
  uint32_t cluster[3], cluster_size, nclusterid[3];
  bool explicit_cluster;
  uint64_t grid_id;
  uint64_t clusters;
  uint64_t next = 0;  // the cluster to begin next: taken with atomic additions
};

struct Stack {
  uint8_t* base;
};

struct Worker {
  uint32_t number;
  void* scheduler_sp;
  Resident* block;
  uint32_t warp;
  Thread* current;
  Launch* launch;
  std::vector<Slot> slots;
  std::vector<Stack> stacks;
  std::vector<uint32_t> free_stacks;
  size_t machine_bytes, local_bytes;
  std::vector<Resident*> pool;
  uint64_t pool_key[4];
  std::vector<Cluster*> resident, cluster_pool;
  uint64_t instructions, threads_run, blocks_run;
  void* signal_stack;
};

// When asynchronous work is done: at once, as late as the rules allow, or at random legal moments.
enum class Asynchrony : uint32_t { eager, late, random };

// The bytes of a launch's parameters; tensor maps among them must be aligned.
struct Parameters {
  alignas(128) uint8_t bytes[32768 + 128];
  uint8_t* data() { return bytes; }
};

struct Job {
  std::vector<Range> ranges;  // sorted by address
  std::vector<Module> modules;
  Parameters parameters;  // of the running launch
  size_t parameter_bytes = 0;
  std::vector<uint32_t> workspace;
  double deadline = 0;
  uint32_t threads = 1;
  uint32_t stack_limit = 0;
  Asynchrony asynchrony = Asynchrony::late;
  uint64_t seed = 0;
  uint8_t shared_poison = 0xff;      // what shared memory begins with
  uint16_t scratch_poison = 0x7fff;  // and scratch memory
  int result_fd = -1;
  pthread_mutex_t print_mutex = PTHREAD_MUTEX_INITIALIZER;
  std::string printed;
};
extern Job job;
extern thread_local Worker* this_worker;

constexpr uint64_t function_base = 0x7f00'0000'0000'0000ull;

// Whether to perform now what may wait. `state` is the caller's own generator (any number to begin with, best
// one that depends on the block and not on the order in which workers run): xorshift64*, mixed with the seed.
inline bool complete_now(uint64_t& state) {
  if (job.asynchrony != Asynchrony::random) return job.asynchrony == Asynchrony::eager;
  state ^= job.seed + 0x9e3779b97f4a7c15ull;
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545f4914f6cdd1dull >> 63;
}

double seconds_now();
const Range* find_range(uint64_t address);

// fiber.cpp
void resume(Worker& w, Thread& next, void** save);
void leave(Worker& w, void** save);  // back to the scheduler
void run_fibers(Worker& w, Thread& first);
void prepare_stacks(Worker& w, size_t machine_bytes, size_t local_bytes);

// schedule.cpp
Thread* pick(Worker& w);
void suspend(Thread& t);
void retire(Thread& t);
void make_runnable(Resident& b, Warp& warp, uint32_t lanes);
void work(Worker& w, Launch& launch);
void barriers_after_exit(Resident& b);

// mbarrier.cpp
void end_polls(Cluster& c, bool success);
bool all_polls_idle(const Cluster& c);

// cluster.cpp
void cluster_after_exit(Thread& t);
Resident* block_of_shared(const Cluster& c, const uint8_t* at);
uint8_t* peer_at(Thread& t, uint64_t address, uint32_t size, uint32_t site, uint32_t access);

// bulk.cpp
uint32_t random_below(Cluster& c, uint32_t n);
bool bulk_progress(Cluster& c, bool anything);
void bulk_chance(Cluster& c);
void bulk_after_exit(Resident& b);
void bulk_finish(Cluster& c);
void bulk_arrival(Thread& t, uint8_t* barrier, uint64_t sequence, uint32_t site);
bool bulk_pending_on(const Cluster& c, const uint8_t* barrier, uint32_t& site);

// async.cpp
void async_perform(Thread& t, uint64_t sequence);
void async_forget(Thread& t);
void async_destroy(Thread& t);

// warp.cpp
void resolve_asking(Resident& b, Warp& warp);
void lanes_after_exit(Resident& b, Warp& warp);

// wgmma.cpp
void wgmma_after_exit(Thread& t);
void wgmma_forget(Resident& b);

// report.cpp
[[noreturn]] void fault(Thread& t, uint32_t site, const char* what, const std::string& fields);
[[noreturn]] void deadlock(Worker& w, Cluster& c);
[[noreturn]] void out_of_fuel(Thread& t, uint32_t site);
[[noreturn]] void refuse(const std::string& message);
[[noreturn]] void finish(uint64_t instructions, uint64_t threads, uint64_t blocks, double seconds);
std::string quoted(const std::string& text);
bool device_string(uint64_t address, std::string& out);
void install_signal_handlers(Worker& w);
void remove_signal_stack(Worker& w);

}  // namespace rt
