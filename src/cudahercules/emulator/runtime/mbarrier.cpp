// State changes of mbarrier objects, the threads that wait for them, and what is not allowed.
#include "state.hpp"

namespace rt {

namespace {

// A thread that did no more than this between two waits has only asked again: an atomic or a fence costs more.
constexpr int64_t idle_fuel = 48;
constexpr uint32_t idle_polls = 64;

[[noreturn]] void misuse(Thread& t, uint32_t site, const std::string& what) {
  fault(t, site, "mbarrier_misuse", "\"detail\":" + quoted("mbarrier misuse: " + what));
}

std::string described(Thread& t, const uint8_t* at) {
  const Resident* b = block_of_shared(*static_cast<Resident&>(*t.block).cluster, at);
  if (!b) return "the mbarrier";
  std::string text = "the mbarrier at byte " + std::to_string(at - b->shared) + " of shared memory";
  if (b != t.block) text += " of block " + std::to_string(b->cluster_rank) + " of the cluster";
  return text;
}

Resident& owner(Thread& t, const uint8_t* at, uint32_t site) {
  Resident* b = block_of_shared(*static_cast<Resident&>(*t.block).cluster, at);
  if (!b) misuse(t, site, "the object does not lie in shared memory");
  return *b;
}

uint64_t valid(Thread& t, const uint8_t* at, uint32_t site) {
  const auto state = load<uint64_t>(at);
  if ((state & mbarrier_mark_bits) != mbarrier_mark) {
    owner(t, at, site);
    misuse(t, site, described(t, at) + " was not initialised");
  }
  watch::mbarrier_used(t, at, site);
  return state;
}

// A phase ends when neither arrivals nor bytes are missing.
void settle(Thread& t, uint8_t* at, uint64_t state, uint32_t site) {
  if (state & mbarrier_count || state & mbarrier_bytes) {
    store<uint64_t>(at, state);
    return;
  }
  Resident& b = owner(t, at, site);
  uint32_t copy_site = 0;
  if (bulk_pending_on(*b.cluster, at, copy_site))
    fault(t, site, "mbarrier_misuse",
          "\"detail\":" +
              quoted("mbarrier misuse: a phase of " + described(t, at) +
                     " ends while a copy that signals it is under way: its bytes were not announced (expect_tx is "
                     "missing or too small)") +
              ",\"other\":" + std::to_string(copy_site));
  state = (state ^ mbarrier_phase) | mbarrier_expected(state);
  store<uint64_t>(at, state);
  watch::mbarrier_completes(t, at);
  b.progress++;
  b.cluster->events++;
  auto& waiters = b.mbarrier_waiters;
  for (size_t i = 0; i < waiters.size();) {
    Thread& waiter = *waiters[i];
    if (waiter.awaited != at || (state >> 63 != 0) == (waiter.detail != 0)) {
      i++;
      continue;
    }
    waiter.value = 1;
    make_runnable(static_cast<Resident&>(*waiter.block), *waiter.warp, 1u << waiter.lane);
    waiters[i] = waiters.back();
    waiters.pop_back();
  }
}

uint64_t with_bytes(Thread& t, const uint8_t* at, uint64_t state, int64_t more, uint32_t site) {
  constexpr int64_t most = (1 << 20) - 1;
  const int64_t bytes = mbarrier_missing_bytes(state) + more;
  if (bytes > most || bytes < -most)
    misuse(t, site, "the transaction count of " + described(t, at) + " overflows: " + std::to_string(bytes) +
                        " bytes, at most 1048575 in a phase");
  return (state & ~mbarrier_bytes) | (uint64_t(bytes) << mbarrier_bytes_at & mbarrier_bytes);
}

}  // namespace

void mbarrier_init(Thread& t, uint8_t* at, uint32_t count, uint32_t site) {
  if (!count || count > mbarrier_count)
    misuse(t, site, "a count of " + std::to_string(count) + " arrivals (1 to 1048575 are possible)");
  Resident& b = owner(t, at, site);
  for (const Thread* waiter : b.mbarrier_waiters)
    if (waiter->awaited == at) misuse(t, site, described(t, at) + " is initialised while a thread waits for it");
  uint32_t copy_site = 0;
  if (bulk_pending_on(*b.cluster, at, copy_site))
    misuse(t, site, described(t, at) + " is initialised while a copy that signals it is under way");
  watch::mbarrier_begins(t, at, site);
  store<uint64_t>(at, uint64_t(count) | uint64_t(count) << 20 | mbarrier_mark);
}

void mbarrier_inval(Thread& t, uint8_t* at, uint32_t site) {
  valid(t, at, site);
  uint32_t copy_site = 0;
  if (bulk_pending_on(*owner(t, at, site).cluster, at, copy_site))
    misuse(t, site, described(t, at) + " is invalidated while a copy that signals it is under way");
  store<uint64_t>(at, 0);
}

void mbarrier_more(Thread& t, uint8_t* at, uint32_t site) {
  const uint64_t state = valid(t, at, site);
  if (mbarrier_missing(state) == mbarrier_count) misuse(t, site, "too many arrivals at " + described(t, at));
  store<uint64_t>(at, state + 1);
}

void mbarrier_expect(Thread& t, uint8_t* at, uint32_t bytes, uint32_t site) {
  settle(t, at, with_bytes(t, at, valid(t, at, site), bytes, site), site);
}

void mbarrier_complete(Thread& t, uint8_t* at, uint32_t bytes, uint32_t site) {
  settle(t, at, with_bytes(t, at, valid(t, at, site), -int64_t(bytes), site), site);
}

uint64_t mbarrier_arrive(Thread& t, uint8_t* at, uint32_t count, bool drop, bool stays, uint32_t site) {
  const uint64_t before = valid(t, at, site);
  const uint32_t missing = mbarrier_missing(before);
  if (!count || count > missing)
    misuse(t, site, std::to_string(count) + " arrivals at " + described(t, at) + ", whose phase waits for " +
                        std::to_string(missing) + " (initialised with " + std::to_string(mbarrier_expected(before)) +
                        ")" + (missing ? "" : " and for bytes that have not come: it is used again before its phase has ended"));
  if (stays && count == missing) misuse(t, site, "an arrival marked noComplete completes the phase of " + described(t, at));
  watch::mbarrier_arrives(t, at);
  uint64_t state = before - count;
  if (drop) state -= uint64_t(count) << 20;
  settle(t, at, state, site);
  return before;
}

bool mbarrier_wait(Thread& t, uint8_t* at, bool phase, uint32_t site) {
  Resident& b = owner(t, at, site);
  const bool again = t.awaited == at && (t.detail != 0) == phase && t.poll_fuel - t.fuel >= 0 &&
                     t.poll_fuel - t.fuel < idle_fuel;
  bulk_chance(*b.cluster);
  if ((valid(t, at, site) >> 63 != 0) != phase) {
    t.polls = 0;
    t.awaited = nullptr;
    watch::mbarrier_passes(t, at);
    return true;
  }
  if (!again) t.polls = 0;
  t.asynchronous = true;
  t.awaited = at;
  t.detail = phase;
  t.value = 0;
  t.wait = Wait::mbarrier;
  t.site = site;
  b.mbarrier_waiters.push_back(&t);
  suspend(t);
  if (t.value) {
    watch::mbarrier_passes(t, at);
    t.polls = 0;
    t.awaited = nullptr;
  } else {
    t.polls++;
  }
  t.poll_fuel = t.fuel;
  return t.value != 0;
}

// No thread of the cluster can run: waits on mbarriers end without success, as they do after a while on a GPU.
void end_polls(Cluster& c, bool success) {
  for (Resident* b : c.blocks) {
    for (Thread* t : b->mbarrier_waiters) {
      t->value = success;
      make_runnable(static_cast<Resident&>(*t->block), *t->warp, 1u << t->lane);
    }
    b->mbarrier_waiters.clear();
  }
}

// Whether every thread that waits on an mbarrier has done nothing else for some rounds.
bool all_polls_idle(const Cluster& c) {
  for (const Resident* b : c.blocks)
    for (const Thread* t : b->mbarrier_waiters)
      if (t->polls < idle_polls) return false;
  return true;
}

}  // namespace rt
