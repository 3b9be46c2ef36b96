// Which thread runs next; barriers; which blocks a worker holds.
//
// A worker (one OS thread) keeps one block resident as long as that makes progress. When every
// thread of all its blocks waits for something outside (a spin loop, seen as spent fuel), it starts
// one block more, so that a block may wait for a later one.
#include <sys/mman.h>

#include <cstring>

#include "state.hpp"

namespace rt {

Slot* slots_of(Thread& t) { return t.worker->slots.data(); }

void make_runnable(Resident& b, Warp& warp, uint32_t lanes) {
  warp.runnable |= lanes;
  if (lanes) b.ready |= 1u << warp.index;
}

namespace {

void forget(Thread& t) {
  t.asynchronous = t.cluster_arrived = false;
  t.polls = t.bulk_group = 0;
  t.awaited = nullptr;
}

}  // namespace

// The next thread of the worker's block, warps first so that lanes of a warp stay together; null if
// none can run.
Thread* pick(Worker& w) {
  Resident& b = *w.block;
  while (b.ready) {
    Warp* warp = &b.warps[w.warp];
    if (!(b.ready >> w.warp & 1)) {
      const uint32_t later = w.warp < 31 ? b.ready & (all_lanes << (w.warp + 1)) : 0;
      w.warp = uint32_t(__builtin_ctz(later ? later : b.ready));
      warp = &b.warps[w.warp];
    }
    if (!warp->runnable) {
      if (warp->asking) resolve_asking(b, *warp);
      if (!warp->runnable) {
        b.ready &= ~(1u << w.warp);
        continue;
      }
    }
    const uint32_t lane = uint32_t(__builtin_ctz(warp->runnable));
    warp->runnable &= warp->runnable - 1;
    if (!warp->runnable && !warp->asking) b.ready &= ~(1u << w.warp);
    Thread& t = warp->threads[lane];
    t.wait = Wait::none;
    if (warp->fresh >> lane & 1) {
      warp->fresh &= ~(1u << lane);
      t.sp = nullptr;
      t.fuel = full_fuel;
      t.count = 0;
      if (t.asynchronous) forget(t);
      if (t.async) async_forget(t);
    }
    return &t;
  }
  return nullptr;
}

// The current thread cannot go on: run others until it is picked again.
void suspend(Thread& t) {
  Worker& w = *t.worker;
  Thread* next = pick(w);
  if (next == &t) {
    w.current = &t;
    return;
  }
  if (next)
    resume(w, *next, &t.sp);
  else
    leave(w, &t.sp);
}

void retire(Thread& t) {
  Resident& b = static_cast<Resident&>(*t.block);
  Warp& warp = *t.warp;
  warp.alive &= ~(1u << t.lane);
  b.alive--;
  b.progress++;
  Worker& w = *t.worker;
  w.instructions += t.count;
  if (!warp.pending.empty()) lanes_after_exit(b, warp);
  if (b.used_barriers) barriers_after_exit(b);
  Cluster& c = *b.cluster;
  c.alive--;
  if (c.arrived) cluster_after_exit(t);
  if (!b.alive) bulk_after_exit(b);
  if (!b.warpgroups.empty()) wgmma_after_exit(t);
}

void yield(Thread& t, uint32_t site) {
  watch::burnt(t, site);
  if (seconds_now() > job.deadline) out_of_fuel(t, watch::hottest(t, site));
  t.fuel = full_fuel;
  t.site = site;
  t.wait = Wait::yielded;
  Resident& b = static_cast<Resident&>(*t.block);
  t.warp->yielded |= 1u << t.lane;
  b.yielded_warps |= 1u << t.warp->index;
  suspend(t);
}

// --- barriers ----------------------------------------------------------------------------------

namespace {

bool complete(const Resident& b, const Barrier& bar) {
  return bar.arrived && bar.arrived >= (bar.expected ? bar.expected : b.alive);
}

uint32_t reduced(const Barrier& bar, uint32_t join) {
  switch (Join(join)) {
    case Join::popc:
      return bar.popc;
    case Join::all:
      return bar.all;
    case Join::any:
      return bar.any;
    default:
      return 0;
  }
}

void release(Resident& b, Barrier& bar, uint32_t id) {
  watch::barrier_opens(b, id);
  for (uint32_t rest = bar.warps; rest; rest &= rest - 1) {
    const uint32_t index = uint32_t(__builtin_ctz(rest));
    Warp& warp = b.warps[index];
    if (bar.reducing)
      for (uint32_t lanes = bar.waiting[index]; lanes; lanes &= lanes - 1) {
        Thread& t = warp.threads[__builtin_ctz(lanes)];
        t.value = reduced(bar, t.value);
      }
    make_runnable(b, warp, bar.waiting[index]);
    bar.waiting[index] = bar.came[index] = 0;
  }
  bar.arrived = bar.warps = 0;
  bar.reducing = false;
  b.used_barriers &= ~(1u << id);
  b.progress++;
  b.cluster->events++;
  bulk_chance(*b.cluster);
}

}  // namespace

void barriers_after_exit(Resident& b) {
  for (uint32_t rest = b.used_barriers; rest; rest &= rest - 1) {
    const uint32_t id = uint32_t(__builtin_ctz(rest));
    if (b.alive && complete(b, b.barriers[id])) release(b, b.barriers[id], id);
  }
}

uint32_t barrier(Thread& t, uint32_t id, uint32_t count, Join join, bool predicate, bool aligned, uint32_t site) {
  Resident& b = static_cast<Resident&>(*t.block);
  if (id > 15) fault(t, site, "illegal_instruction", "\"detail\":\"barrier " + std::to_string(id) + " does not exist (0 to 15)\"");
  if (count % 32 || (join == Join::arrive && !count))
    fault(t, site, "illegal_instruction",
          "\"detail\":\"barrier count " + std::to_string(count) + " is not a positive multiple of 32\"");
  Barrier& bar = b.barriers[id];
  const uint32_t index = t.warp->index;
  if (!bar.arrived) {
    bar.popc = bar.any = 0;
    bar.all = 1;
  }
  b.used_barriers |= 1u << id;
  if (!bar.came[index]) {
    bar.warps |= 1u << index;
    bar.site[index] = site;
  } else if (aligned && bar.site[index] != site) {
    fault(t, site, "barrier_divergence", "\"barrier\":" + std::to_string(id) + ",\"other\":" + std::to_string(bar.site[index]));
  }
  bar.came[index] |= 1u << t.lane;
  bar.expected = count;
  bar.arrived++;
  bar.popc += predicate;
  bar.any |= predicate;
  bar.all &= uint32_t(predicate);
  if (join > Join::arrive) bar.reducing = true;
  t.value = uint32_t(join);
  watch::barrier_arrives(t, id);
  if (complete(b, bar)) {
    const uint32_t result = reduced(bar, uint32_t(join));
    release(b, bar, id);
    if (join != Join::arrive) watch::barrier_passes(t, id);
    return result;
  }
  if (join == Join::arrive) return 0;
  bar.waiting[index] |= 1u << t.lane;
  t.wait = Wait::barrier;
  t.detail = id;
  t.site = site;
  suspend(t);
  return t.value;
}

// --- blocks ------------------------------------------------------------------------------------

namespace {

constexpr uint32_t most_resident_threads = 1 << 16;

uint32_t thread_count(const Launch& l) { return l.block[0] * l.block[1] * l.block[2]; }

Resident* build_block(Worker& w, const Launch& l, size_t shared_bytes) {
  auto* b = new Resident{};
  const uint32_t n = thread_count(l);
  b->threads.resize(n);
  b->warps.resize((n + 31) / 32);
  b->window = (shared_bytes + shared_origin + 8191) / 4096 * 4096;
  void* at = mmap(nullptr, b->window, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) refuse("no memory for the shared memory of more blocks");
  b->shared = static_cast<uint8_t*>(at) + shared_origin;
  for (uint32_t i = 0; i < n; i++) {
    Thread& t = b->threads[i];
    memset(static_cast<void*>(&t), 0, sizeof t);
    t.worker = &w;
    t.block = b;
    t.linear = i;
    t.lane = i % 32;
    t.tid[0] = i % l.block[0];
    t.tid[1] = i / l.block[0] % l.block[1];
    t.tid[2] = i / l.block[0] / l.block[1];
    t.warp = &b->warps[i / 32];
  }
  for (uint32_t i = 0; i < b->warps.size(); i++) {
    b->warps[i].index = i;
    b->warps[i].threads = &b->threads[i * 32];
  }
  memset(b->barriers, 0, sizeof b->barriers);
  return b;
}

void destroy_block(Resident* b) {
  for (Thread& t : b->threads) async_destroy(t);
  wgmma_forget(*b);
  watch::forget(*b);
  munmap(b->shared - shared_origin, b->window);
  delete b;
}

// Block `rank` of cluster `number` of the grid.
void begin_block(Resident& b, Cluster& c, const Launch& l, uint64_t number, uint32_t rank, size_t static_shared) {
  b.cluster_size = l.cluster_size;
  // Divisions are most of what starting a small block costs: none where a grid has one dimension.
  const bool line = l.clusters == l.nclusterid[0];
  const uint64_t row = line ? 0 : number / l.nclusterid[0];
  b.clusterid[0] = uint32_t(number - row * l.nclusterid[0]);
  b.clusterid[1] = line ? 0 : uint32_t(row % l.nclusterid[1]);
  b.clusterid[2] = line ? 0 : uint32_t(row / l.nclusterid[1]);
  const uint32_t layer = rank ? rank / l.cluster[0] : 0;
  b.cluster_ctaid[0] = rank - layer * l.cluster[0];
  b.cluster_ctaid[1] = layer ? layer % l.cluster[1] : 0;
  b.cluster_ctaid[2] = layer ? layer / l.cluster[1] : 0;
  for (int i = 0; i < 3; i++) {
    b.ntid[i] = l.block[i];
    b.nctaid[i] = l.grid[i];
    b.cluster_nctaid[i] = l.cluster[i];
    b.nclusterid[i] = l.nclusterid[i];
    b.ctaid[i] = b.clusterid[i] * l.cluster[i] + b.cluster_ctaid[i];
  }
  b.cluster = &c;
  b.cluster_rank = rank;
  b.shared_base = shared_origin | rank << 24;
  b.explicit_cluster = l.explicit_cluster;
  b.begun = false;
  b.mbarrier_waiters.clear();
  b.shared_dynamic = l.dynamic_shared;
  b.shared_size = uint32_t(static_shared + l.dynamic_shared);
  b.grid_id = l.grid_id;
  b.grid_workspace = l.cooperative ? reinterpret_cast<uint64_t>(job.workspace.data()) : 0;
  // Shared memory is not zero on a GPU: a kernel must not profit from that here.
  memset(b.shared - reserved_shared, job.shared_poison, reserved_shared + b.shared_size);
  if (b.used_barriers) memset(b.barriers, 0, sizeof b.barriers);
  if (!b.warpgroups.empty()) wgmma_forget(b);
  b.used_barriers = b.yielded_warps = 0;
  b.progress = 0;
  const auto n = uint32_t(b.threads.size());
  b.alive = n;
  const auto warps = uint32_t(b.warps.size());
  b.ready = warps == 32 ? all_lanes : (1u << warps) - 1;
  for (Warp& warp : b.warps) {
    const uint32_t lanes = n - warp.index * 32;
    warp.alive = warp.runnable = warp.fresh = lanes >= 32 ? all_lanes : (1u << lanes) - 1;
    warp.yielded = warp.asking = warp.patience = 0;
    warp.pending.clear();
  }
}

enum class State { finished, stalled };

void wake_yielded(Resident& b) {
  for (uint32_t rest = b.yielded_warps; rest; rest &= rest - 1) {
    Warp& warp = b.warps[__builtin_ctz(rest)];
    make_runnable(b, warp, warp.yielded);
    warp.yielded = 0;
  }
  b.yielded_warps = 0;
}

// Run every block of the cluster as long as any of their threads can run.
void run_ready(Worker& w, Cluster& c) {
  for (bool ran = true; ran;) {
    ran = false;
    for (Resident* b : c.blocks) {
      if (!b->ready) continue;
      w.block = b;
      w.warp = 0;
      if (Thread* first = pick(w)) {
        b->begun = true;
        run_fibers(w, *first);
      }
      ran = true;
    }
  }
}

const Thread* some_thread(const Cluster& c) {
  for (const Resident* b : c.blocks)
    for (const Warp& warp : b->warps)
      if (warp.alive) return &warp.threads[__builtin_ctz(warp.alive)];
  return nullptr;
}

State run_cluster(Worker& w, Cluster& c) {
  // Copies that nobody waits for by name must still arrive some time, for threads that spin on their data.
  constexpr uint32_t patience = 4;
  for (Resident* b : c.blocks) wake_yielded(*b);
  for (uint32_t rounds = 0;; rounds++) {
    run_ready(w, c);
    if (!c.alive) {
      bulk_finish(c);
      return State::finished;
    }
    bool spinning = false, waiting = false;
    for (const Resident* b : c.blocks) {
      spinning |= b->yielded_warps != 0;
      waiting |= !b->mbarrier_waiters.empty();
    }
    if (c.bulk && bulk_progress(c, !spinning || c.idle >= patience)) {
      c.idle = 0;
      continue;
    }
    if (spinning) {
      end_polls(c, false);
      c.idle++;
      return State::stalled;
    }
    if (!waiting || all_polls_idle(c)) deadlock(w, c);
    if (rounds % 256 == 255 && seconds_now() > job.deadline) {
      Thread& t = const_cast<Thread&>(*some_thread(c));
      out_of_fuel(t, t.site);
    }
    end_polls(c, false);
  }
}

bool take_cluster(Worker& w, Launch& l) {
  const uint64_t number = __atomic_fetch_add(&l.next, 1, __ATOMIC_RELAXED);
  if (number >= l.clusters) return false;
  Cluster* c;
  if (w.cluster_pool.empty()) {
    c = new Cluster{};
  } else {
    c = w.cluster_pool.back();
    w.cluster_pool.pop_back();
  }
  const uint32_t size = l.cluster_size;
  c->alive = size * thread_count(l);
  c->arrived = c->phase = c->idle = 0;
  c->events = 0;
  c->random = job.seed + number * 0x9e3779b97f4a7c15ull;
  for (uint32_t rank = 0; rank < size; rank++) {
    Resident* b;
    if (w.pool.empty()) {
      b = build_block(w, l, l.kernel->static_shared + l.dynamic_shared);
    } else {
      b = w.pool.back();
      w.pool.pop_back();
    }
    begin_block(*b, *c, l, number, rank, l.kernel->static_shared);
    c->blocks.push_back(b);
  }
  watch::begin(*c);
  // Threads look at the clock when their fuel is spent; short blocks without end need this look.
  if (number % 256 == 0 && seconds_now() > job.deadline) out_of_fuel(c->blocks[0]->threads[0], no_site);
  w.resident.push_back(c);
  return true;
}

void end_cluster(Worker& w, Cluster* c) {
  for (Resident* b : c->blocks) {
    w.blocks_run++;
    w.threads_run += b->threads.size();
    w.pool.push_back(b);
  }
  c->blocks.clear();
  w.cluster_pool.push_back(c);
}

void fit_pool(Worker& w, const Launch& l) {
  const uint64_t key[4] = {l.block[0], l.block[1], l.block[2],
                           (l.kernel->static_shared + l.dynamic_shared + 4095) / 4096};
  if (!memcmp(key, w.pool_key, sizeof key)) return;
  memcpy(w.pool_key, key, sizeof key);
  for (Resident* b : w.pool) destroy_block(b);
  w.pool.clear();
}

uint64_t progress_of(const Cluster& c) {
  uint64_t sum = c.events;
  for (const Resident* b : c.blocks) sum += b->progress;
  return sum;
}

}  // namespace

// Run clusters of the launch until none is left.
void work(Worker& w, Launch& l) {
  this_worker = &w;
  w.launch = &l;
  w.slots.assign(job.modules[l.module].exports->site_count + 1, Slot{0, 0});
  const size_t machine = (size_t(192) << 10) + size_t(32) * job.stack_limit;
  prepare_stacks(w, machine, size_t(l.kernel->local_bytes) + (size_t(64) << 10) + size_t(4) * job.stack_limit);
  fit_pool(w, l);
  const uint64_t cluster_threads = uint64_t(thread_count(l)) * l.cluster_size;
  bool more = true;
  uint32_t idle_rounds = 0;
  for (;;) {
    if (w.resident.empty() && !(more = more && take_cluster(w, l))) break;
    uint64_t progress = 0;
    for (size_t i = 0; i < w.resident.size();) {
      Cluster& c = *w.resident[i];
      const uint64_t before = progress_of(c);
      if (run_cluster(w, c) == State::finished) {
        end_cluster(w, &c);
        w.resident.erase(w.resident.begin() + long(i));
        progress++;
      } else {
        progress += progress_of(c) - before;
        i++;
      }
    }
    idle_rounds = progress ? 0 : idle_rounds + 1;
    if (idle_rounds >= 2 && more && w.resident.size() * cluster_threads < most_resident_threads) {
      more = take_cluster(w, l);
      idle_rounds = 1;
    }
  }
}

}  // namespace rt
