#include "clocks.hpp"

namespace rt::watch {

void Vector::join(const Vector& other) {
  if (counts.size() < other.counts.size()) counts.resize(other.counts.size());
  for (size_t i = 0; i < other.counts.size(); i++)
    if (counts[i] < other.counts[i]) counts[i] = other.counts[i];
}

Vector& Told::open() {
  auto* v = const_cast<Vector*>(told_.get());
  if (v && !closed_) return *v;
  auto* copy = new Vector;
  if (v) copy->counts = v->counts;
  told_ = Shared(copy);
  closed_ = false;
  return *copy;
}

void Told::add(const Shared& s) {
  if (!s.get() || s == last_) return;
  open().join(*s.get());
  last_ = s;
}

void Told::add(const Knower& k, const uint32_t (&lanes)[own_lanes]) {
  add(k.common);
  Vector& v = open();
  for (uint32_t i = 0; i < own_lanes; i++)
    if (k.own[i]) v.raise(lanes[i], k.own[i]);
}

void Told::raise(uint32_t lane, uint32_t count) { open().raise(lane, count); }

const Shared& Told::all() {
  closed_ = true;
  return told_;
}

void Knowledge::own(uint32_t thread, uint32_t (&out)[own_lanes]) const {
  const auto n = uint32_t(threads.size());
  out[lane_thread] = thread;
  out[lane_copies] = n + thread;
  out[lane_bulk] = 2 * n + thread;
  out[lane_products] = 3 * n + thread / block_threads * block_groups() + thread % block_threads / 128;
}

uint32_t Knowledge::known(uint32_t thread, uint32_t lane) const {
  const Knower& k = threads[thread];
  uint32_t count = k.common.at(lane), mine[own_lanes];
  own(thread, mine);
  for (uint32_t i = 0; i < own_lanes; i++)
    if (mine[i] == lane && k.own[i] > count) count = k.own[i];
  return count;
}

uint32_t Knowledge::fenced(uint32_t thread) const {
  const auto n = uint32_t(threads.size());
  return 3 * n + n / block_threads * block_groups() + thread;
}

void Knowledge::fence(uint32_t thread) {
  Knower& k = threads[thread];
  auto* after = new Vector;
  if (k.common.get()) after->counts = k.common.get()->counts;
  for (uint32_t i = 0; i < threads.size(); i++)
    if (const uint32_t count = known(thread, i)) after->raise(fenced(i), count);
  k.common = Shared(after);
  k.own[lane_thread]++;  // what it stores next is not fenced
}

// What the thread knows and has done so far is told; what it does next is not.
void Knowledge::release(uint32_t thread, Told& to) {
  uint32_t lanes[own_lanes];
  own(thread, lanes);
  to.add(threads[thread], lanes);
  threads[thread].own[lane_thread]++;
}

void Knowledge::acquire(uint32_t thread, Published& from) {
  Knower& k = threads[thread];
  if (!from.known.get() || k.common == from.known) return;
  if (!k.common.get()) {
    k.common = from.known;
    return;
  }
  if (!(from.before == k.common)) {
    auto* both = new Vector;
    both->counts = k.common.get()->counts;
    both->join(*from.known.get());
    from.before = k.common;
    from.after = both->counts == from.known.get()->counts ? from.known : Shared(both);
    if (from.after == from.known) delete both;
  }
  k.common = from.after;
}

Mbarrier& Knowledge::mbarrier(const uint8_t* at) {
  const auto found = mbarriers.find(at);
  if (found != mbarriers.end()) return found->second;
  Mbarrier& made = mbarriers[at];
  made.lane = lanes++;
  return made;
}

Published& Knowledge::location(const uint8_t* at) {
  constexpr size_t most_locations = 4096;
  const auto found = locations.find(at);
  if (found != locations.end()) return found->second;
  return locations.size() < most_locations ? locations[at] : crowd;
}

Knowledge& knowledge(Thread& t) { return *static_cast<Resident&>(*t.block).cluster->watched.knowledge; }

}  // namespace rt::watch
