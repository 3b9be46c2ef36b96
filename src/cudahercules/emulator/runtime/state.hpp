// The runtime's own view of its threads, warps, blocks, workers and the job.
#pragma once
#include <pthread.h>

#include <string>
#include <vector>

#include "device.hpp"

namespace rt {

constexpr int64_t full_fuel = 65536;
constexpr uint32_t all_lanes = 0xffffffffu;
constexpr uint32_t no_site = 0xffffffffu;

struct Pending {
  uint32_t mask;
  Collective function;
  Lanes lanes;
};

struct Warp {
  uint32_t index;
  uint32_t alive, runnable, fresh, yielded, asking;
  uint32_t patience;
  Thread* threads;
  std::vector<Pending> pending;
};

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
  uint64_t grid_id;
  uint64_t blocks;
  uint64_t next = 0;  // the block to begin next: taken with atomic additions
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
  std::vector<Resident*> resident;
  uint64_t instructions, threads_run, blocks_run;
  void* signal_stack;
};

struct Job {
  std::vector<Range> ranges;  // sorted by address
  std::vector<Module> modules;
  std::vector<uint8_t> parameters;  // of the running launch; never moves
  size_t parameter_bytes = 0;
  std::vector<uint32_t> workspace;
  double deadline = 0;
  uint32_t threads = 1;
  uint32_t stack_limit = 0;
  int result_fd = -1;
  pthread_mutex_t print_mutex = PTHREAD_MUTEX_INITIALIZER;
  std::string printed;
};
extern Job job;
extern thread_local Worker* this_worker;

constexpr uint64_t function_base = 0x7f00'0000'0000'0000ull;

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

// async.cpp
void async_forget(Thread& t);
void async_destroy(Thread& t);

// warp.cpp
void resolve_asking(Resident& b, Warp& warp);
void lanes_after_exit(Resident& b, Warp& warp);

// report.cpp
[[noreturn]] void fault(Thread& t, uint32_t site, const char* what, const std::string& fields);
[[noreturn]] void deadlock(Worker& w, Resident& b);
[[noreturn]] void out_of_fuel(Thread& t, uint32_t site);
[[noreturn]] void refuse(const std::string& message);
[[noreturn]] void finish(uint64_t instructions, uint64_t threads, uint64_t blocks, double seconds);
std::string quoted(const std::string& text);
bool device_string(uint64_t address, std::string& out);
void install_signal_handlers(Worker& w);
void remove_signal_stack(Worker& w);

}  // namespace rt
