// cp.async: copies from global to shared memory that nobody may rely on before the wait.
//
// Late, a copy is performed when its thread waits for it (or somebody waits for the mbarrier at which it
// arrives): a kernel that forgets the wait reads what was there before.
#include <cstring>

#include "state.hpp"

namespace rt {

struct AsyncQueue {
  struct Item {
    uint8_t* to;
    const uint8_t* from;
    uint32_t size, bytes;
    uint64_t group;
  };
  std::vector<Item> items;
  size_t first = 0;
  uint64_t performed = 0;  // number of copies done so far
  uint64_t group = 0;
};

namespace {

void perform_first(AsyncQueue& q) {
  const auto& item = q.items[q.first++];
  if (item.bytes) memcpy(item.to, item.from, item.bytes);
  memset(item.to + item.bytes, 0, item.size - item.bytes);
  q.performed++;
  if (q.first == q.items.size()) {
    q.items.clear();
    q.first = 0;
  }
}

void perform_groups(AsyncQueue& q, uint64_t groups) {
  while (q.first < q.items.size() && q.items[q.first].group < groups) perform_first(q);
}

// Copies issued so far.
uint64_t issued(const AsyncQueue& q) { return q.performed + (q.items.size() - q.first); }

AsyncQueue& queue_of(Thread& t) {
  if (!t.async) t.async = new AsyncQueue;
  return *t.async;
}

}  // namespace

// The thread's copies up to number `sequence`, counted from its start.
void async_perform(Thread& t, uint64_t sequence) {
  AsyncQueue& q = queue_of(t);
  while (q.first < q.items.size() && q.performed < sequence) perform_first(q);
}

void async_copy(Thread& t, uint8_t* to, const uint8_t* from, uint32_t size, uint32_t bytes, uint32_t site) {
  AsyncQueue& q = queue_of(t);
  q.items.push_back({to, from, size, bytes, q.group});
  watch::copy_begins(t, to, size, issued(q), site);
  Cluster& c = *static_cast<Resident&>(*t.block).cluster;
  if (job.asynchrony == Asynchrony::eager)
    perform_first(q);
  else if (job.asynchrony == Asynchrony::random)
    while (q.first < q.items.size() && random_below(c, 3) == 0) perform_first(q);
}

void async_commit(Thread& t) {
  AsyncQueue& q = queue_of(t);
  q.group++;
  watch::copies_committed(t, issued(q));
}

void async_wait(Thread& t, uint64_t groups_left) {
  if (!t.async || t.async->group < groups_left) return;
  perform_groups(*t.async, t.async->group - groups_left);
  watch::copies_waited(t, t.async->group - groups_left);
}

void async_wait_all(Thread& t) {
  if (!t.async) return;
  perform_groups(*t.async, ~uint64_t(0));
  watch::all_copies_waited(t, t.async->performed);
}

// An arrival when the copies so far are done. With `count_first` the phase waits for one arrival more.
void async_arrive(Thread& t, uint8_t* barrier, bool count_first, uint32_t site) {
  AsyncQueue& q = queue_of(t);
  if (count_first) mbarrier_more(t, barrier, site);
  watch::copies_arrive(t, barrier, issued(q));
  bulk_arrival(t, barrier, issued(q), site);
}

// A pooled thread begins anew: copies that its predecessor never waited for are dropped.
void async_forget(Thread& t) {
  t.async->items.clear();
  t.async->first = 0;
  t.async->performed = 0;
  t.async->group = 0;
}

void async_destroy(Thread& t) { delete t.async; }

// The source of a copy that reads fewer bytes than it writes.
const uint8_t* async_source(Thread& t, uint64_t address, uint32_t bytes, uint32_t site) {
  Slot slot{0, 0};
  for (uint32_t i = 0; i < bytes; i++) resolve(t, slot, address + i, 1, site, access_read, false);
  if (bytes) watch::access(t, reinterpret_cast<const uint8_t*>(address), bytes, site, access_read);
  return reinterpret_cast<const uint8_t*>(address);
}

}  // namespace rt
