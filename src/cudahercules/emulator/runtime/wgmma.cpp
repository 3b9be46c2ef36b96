// When the products of a warpgroup happen, and what its threads see in the meantime.
#include "wgmma.hpp"

#include <algorithm>

#include <cstring>

#include "state.hpp"

namespace rt {

constexpr uint32_t group_threads = 128;
constexpr uint32_t poison = 0x7fff7fff;  // a NaN as f32 and as two f16

struct Move {
  uint64_t after;  // products that come before it
  uint32_t *to, *from;
};

struct GroupThread {
  uint64_t issued = 0, target = 0;
  bool fenced = false;
  std::vector<uint64_t> groups;  // products issued at each commit that no wait has covered yet
  std::vector<Accumulators*> frames;
  std::vector<Move> moves;
  std::vector<std::vector<uint32_t>> left;  // accumulators of functions that ended before their products
};

struct Operation {
  WgmmaForm form;
  WgmmaOperands operands;
  uint32_t arrived = 0, site = 0;
  WgmmaThread threads[group_threads];
};

namespace {

std::string detail(const char* text) { return std::string("\"detail\":\"") + text + "\""; }

bool same(const WgmmaForm& x, const WgmmaForm& y) {
  return x.columns == y.columns && x.d == y.d && x.a == y.a && x.b == y.b && x.a_in_registers == y.a_in_registers &&
         x.a_transposed == y.a_transposed && x.b_transposed == y.b_transposed && x.a_negated == y.a_negated &&
         x.b_negated == y.b_negated && x.saturate == y.saturate;
}

}  // namespace

struct Warpgroup {
  GroupThread threads[group_threads];
  std::vector<Operation*> operations;  // those not performed yet, the oldest first
  std::vector<Operation*> spare;
  uint64_t performed = 0, complete = 0;
  uint64_t random = 0;
  uint32_t waiting[4] = {};

  ~Warpgroup() {
    for (Operation* o : operations) delete o;
    for (Operation* o : spare) delete o;
  }
  Operation& operation(uint64_t number, bool& fresh) {
    fresh = number - performed == operations.size();
    if (fresh) {
      operations.push_back(spare.empty() ? new Operation : spare.back());
      if (!spare.empty()) spare.pop_back();
      operations.back()->arrived = 0;
    }
    return *operations[number - performed];
  }
};

namespace {

Warpgroup* existing(Thread& t) {
  const auto& groups = static_cast<Resident&>(*t.block).warpgroups;
  const uint32_t index = t.linear / group_threads;
  return index < groups.size() ? groups[index] : nullptr;
}

Warpgroup& warpgroup(Thread& t) {
  auto& groups = static_cast<Resident&>(*t.block).warpgroups;
  const uint32_t index = t.linear / group_threads;
  if (groups.size() <= index) groups.resize(index + 1);
  if (!groups[index]) {
    groups[index] = new Warpgroup;
    const uint32_t* c = t.block->ctaid;
    groups[index]->random = ((uint64_t(c[2]) << 16 | c[1]) << 32 | c[0]) * 64 + index + 1;
  }
  return *groups[index];
}

GroupThread& own(Warpgroup& g, const Thread& t) { return g.threads[t.linear % group_threads]; }

void apply_moves(GroupThread& g, uint64_t until) {
  size_t done = 0;
  while (done < g.moves.size() && g.moves[done].after <= until) {
    *g.moves[done].to = *g.moves[done].from;
    done++;
  }
  if (done) g.moves.erase(g.moves.begin(), g.moves.begin() + long(done));
}

void wake(Resident& b, Warpgroup& g, uint32_t first_warp) {
  for (uint32_t w = 0; w < 4; w++) {
    uint32_t ready = 0;
    for (uint32_t rest = g.waiting[w]; rest; rest &= rest - 1) {
      const auto lane = uint32_t(__builtin_ctz(rest));
      if (g.threads[w * 32 + lane].target <= g.performed) ready |= 1u << lane;
    }
    if (!ready) continue;
    g.waiting[w] &= ~ready;
    make_runnable(b, b.warps[first_warp + w], ready);
    b.progress++;
  }
}

// Performs the first products up to number `limit`; all of them are complete.
void perform(Thread& t, Warpgroup& g, uint64_t limit) {
  if (g.performed >= limit) return;
  Resident& b = static_cast<Resident&>(*t.block);
  const size_t count = limit - g.performed;
  for (size_t i = 0; i < count; i++) {
    Operation& o = *g.operations[i];
    for (GroupThread& thread : g.threads) apply_moves(thread, g.performed + i);
    const uint32_t outside = wgmma_compute(o.form, o.operands, o.threads, b.shared - shared_origin, shared_origin,
                                           shared_origin + b.shared_size);
    if (outside) fault_shared(t, uint64_t(int64_t(outside) - int64_t(shared_origin)), 16, o.site, access_read);
    g.spare.push_back(&o);
  }
  g.operations.erase(g.operations.begin(), g.operations.begin() + long(count));
  g.performed = limit;
  wake(b, g, t.linear / group_threads * 4);
}

void perform_what_is_due(Thread& t, Warpgroup& g) {
  if (complete_now(g.random)) {
    perform(t, g, g.complete);
    return;
  }
  uint64_t due = 0;
  for (uint32_t w = 0; w < 4; w++)
    for (uint32_t rest = g.waiting[w]; rest; rest &= rest - 1) {
      const uint64_t target = g.threads[w * 32 + uint32_t(__builtin_ctz(rest))].target;
      if (target <= g.complete) due = std::max(due, target);
    }
  perform(t, g, due);
}

// The registers of products that this thread has waited for get their values.
void settle(GroupThread& thread, uint64_t target) {
  apply_moves(thread, target);
  for (Accumulators* acc : thread.frames)
    for (uint32_t i = 0; i < acc->count; i++)
      if (acc->until[i] && acc->until[i] <= target) {
        acc->value[i] = acc->shadow[i];
        acc->until[i] = 0;
      }
}

// Product `number` needs all 128 threads; those that have ended must have issued it before.
void check_warpgroup(Thread& t, const Warpgroup& g, uint64_t number, uint32_t site) {
  const Resident& b = static_cast<Resident&>(*t.block);
  const uint32_t first = t.linear / group_threads * 4;
  for (uint32_t w = 0; w < 4; w++) {
    const bool exists = first + w < b.warps.size();
    uint32_t gone = exists ? ~b.warps[first + w].alive : all_lanes;
    for (uint32_t rest = gone; rest; rest &= rest - 1)
      if (g.threads[w * 32 + uint32_t(__builtin_ctz(rest))].issued > number) gone &= ~(rest & -rest);
    if (gone)
      fault(t, site, "illegal_instruction", detail("wgmma needs a warpgroup: four whole warps, of which not all are there"));
  }
}

void put_into_flight(GroupThread& thread, Accumulators& acc, const WgmmaSite& wgmma) {
  const uint32_t count = wgmma.form.columns / (wgmma.form.d == Format::f16 ? 4 : 2);
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t r = wgmma.index[i];
    if (!acc.until[r]) {
      acc.shadow[r] = acc.value[r];
      acc.value[r] = poison;
    }
    acc.until[r] = uint32_t(thread.issued);
  }
  if (!acc.used) {
    acc.used = true;
    thread.frames.push_back(&acc);
  }
}

}  // namespace

void wgmma_issue(Thread& t, Accumulators& acc, const WgmmaSite& wgmma, const WgmmaOperands& operands, uint32_t site) {
  Warpgroup& g = warpgroup(t);
  GroupThread& thread = own(g, t);
  check_warpgroup(t, g, thread.issued, site);
  if (!thread.fenced)
    fault(t, site, "illegal_instruction", detail("wgmma.mma_async without a wgmma.fence before it: registers are not ordered"));
  bool fresh;
  Operation& o = g.operation(thread.issued++, fresh);
  if (fresh) {
    o.form = wgmma.form;
    o.operands = operands;
    o.site = site;
  } else if (!same(o.form, wgmma.form)) {
    fault(t, site, "illegal_instruction", detail("threads of one warpgroup execute different wgmma instructions"));
  } else if (o.operands.b != operands.b || o.operands.a != operands.a || o.operands.keep != operands.keep) {
    fault(t, site, "illegal_instruction", detail("threads of one warpgroup give wgmma different descriptors or scale-d"));
  }
  WgmmaThread& part = o.threads[t.linear % group_threads];
  part.values = acc.shadow;
  part.index = wgmma.index;
  memcpy(part.a, operands.a_registers, sizeof part.a);
  put_into_flight(thread, acc, wgmma);
  if (++o.arrived == group_threads) {
    watch::wgmma_reads(t, o.form, o.operands, g.complete, site);
    g.complete++;
    perform_what_is_due(t, g);
  }
}

void wgmma_fence(Thread& t, uint32_t) { own(warpgroup(t), t).fenced = true; }

void wgmma_commit(Thread& t, uint32_t) {
  GroupThread& thread = own(warpgroup(t), t);
  thread.groups.push_back(thread.issued);
}

void wgmma_wait(Thread& t, uint32_t groups_left, uint32_t site) {
  Warpgroup* g = existing(t);
  if (!g) return;
  GroupThread& thread = own(*g, t);
  if (thread.groups.size() <= groups_left) return;
  const size_t covered = thread.groups.size() - groups_left;
  thread.target = thread.groups[covered - 1];
  thread.groups.erase(thread.groups.begin(), thread.groups.begin() + long(covered));
  if (g->performed < thread.target && g->complete >= thread.target) perform(t, *g, thread.target);
  while (g->performed < thread.target) {
    g->waiting[t.linear % group_threads / 32] |= 1u << t.lane;
    t.wait = Wait::warpgroup;
    t.site = site;
    suspend(t);
  }
  settle(thread, thread.target);
  watch::wgmma_waited(t, thread.target);
}

void wgmma_moved(Accumulators& acc, uint32_t to, uint32_t from) {
  if (acc.until[from]) {
    GroupThread& thread = own(*existing(acc.thread), acc.thread);
    thread.moves.push_back({thread.issued, &acc.shadow[to], &acc.shadow[from]});
  }
  acc.until[to] = acc.until[from];
}

// The function ends: products still under way must not write into its frame.
void wgmma_leave(Accumulators& acc) {
  Warpgroup* g = existing(acc.thread);
  if (!g) return;
  GroupThread& thread = own(*g, acc.thread);
  thread.frames.erase(std::remove(thread.frames.begin(), thread.frames.end(), &acc), thread.frames.end());
  std::vector<uint32_t>* copy = nullptr;
  for (size_t i = 0; i < g->operations.size() && g->performed + i < thread.issued; i++) {
    WgmmaThread& part = g->operations[i]->threads[acc.thread.linear % group_threads];
    if (part.values != acc.shadow) continue;
    if (!copy) {
      thread.left.emplace_back(acc.shadow, acc.shadow + acc.count);
      copy = &thread.left.back();
    }
    part.values = copy->data();
  }
  const auto inside = [&](const Move& m) { return m.to >= acc.shadow && m.to < acc.shadow + acc.count; };
  thread.moves.erase(std::remove_if(thread.moves.begin(), thread.moves.end(), inside), thread.moves.end());
}

void wgmma_after_exit(Thread& t) {
  Warpgroup* g = existing(t);
  if (!g) return;
  while (!own(*g, t).frames.empty()) wgmma_leave(*own(*g, t).frames.back());
}

void wgmma_forget(Resident& b) {
  for (Warpgroup* g : b.warpgroups) delete g;
  b.warpgroups.clear();
}

}  // namespace rt
