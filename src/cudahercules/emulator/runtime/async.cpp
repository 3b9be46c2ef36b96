// cp.async: copies from global to shared memory that nobody may rely on before the wait.
//
// A copy is performed when its thread waits for it, as late as hardware could: a kernel that forgets
// the wait reads what was there before.
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
  uint64_t group = 0;
};

namespace {

void perform(AsyncQueue& q, uint64_t groups) {
  while (q.first < q.items.size() && q.items[q.first].group < groups) {
    const auto& item = q.items[q.first++];
    if (item.bytes) memcpy(item.to, item.from, item.bytes);
    memset(item.to + item.bytes, 0, item.size - item.bytes);
  }
  if (q.first == q.items.size()) {
    q.items.clear();
    q.first = 0;
  }
}

}  // namespace

void async_copy(Thread& t, uint8_t* to, const uint8_t* from, uint32_t size, uint32_t bytes) {
  if (!t.async) t.async = new AsyncQueue;
  t.async->items.push_back({to, from, size, bytes, t.async->group});
}

void async_commit(Thread& t) {
  if (!t.async) t.async = new AsyncQueue;
  t.async->group++;
}

void async_wait(Thread& t, uint64_t groups_left) {
  if (t.async && t.async->group >= groups_left) perform(*t.async, t.async->group - groups_left);
}

void async_wait_all(Thread& t) {
  if (t.async) perform(*t.async, ~uint64_t(0));
}

// A pooled thread begins anew: copies that its predecessor never waited for are dropped.
void async_forget(Thread& t) {
  t.async->items.clear();
  t.async->first = 0;
  t.async->group = 0;
}

void async_destroy(Thread& t) { delete t.async; }

// The source of a copy that reads fewer bytes than it writes.
const uint8_t* async_source(Thread& t, uint64_t address, uint32_t bytes, uint32_t site) {
  Slot slot{0, 0};
  for (uint32_t i = 0; i < bytes; i++) resolve(t, slot, address + i, 1, site, access_read, false);
  return reinterpret_cast<const uint8_t*>(address);
}

}  // namespace rt
