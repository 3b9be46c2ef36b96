// What each thing that happens means for who knows what, and for the memory that it touches.
#include "../wgmma.hpp"
#include "global.hpp"

namespace rt::watch {

std::string found();

namespace {

uint32_t generations = 0;
std::vector<uint64_t> burns;  // by site, of the running launch
uint64_t burns_launch = 0;

Event event_of(Knowledge& k, Thread& t, How how, uint32_t site) {
  const uint32_t i = k.index(t);
  return {i, k.threads[i].own[lane_thread], site, uint16_t(i), how, true};
}

Event event_on(Knowledge& k, Thread& t, Lane own, uint64_t count, uint32_t site) {
  const uint32_t i = k.index(t);
  uint32_t lanes[own_lanes];
  k.own(i, lanes);
  return {lanes[own], uint32_t(count), site, uint16_t(i), How::plain, true};
}

Event event_of_phase(Knowledge& k, Thread& t, const uint8_t* barrier, How how, uint32_t site) {
  const Mbarrier& m = k.mbarrier(barrier);
  return {m.lane, m.phases + 1, site, uint16_t(k.index(t)), how, true};
}

Resident* home(Thread& t, const uint8_t* at) {
  Resident& b = static_cast<Resident&>(*t.block);
  if (in_shared_of(b, reinterpret_cast<uint64_t>(at))) return &b;
  return b.cluster_size > 1 ? block_of_shared(*b.cluster, at) : nullptr;
}

void touch_by(Thread& t, Resident& b, const uint8_t* at, uint32_t size, Touch kind, const Event& event) {
  if (at < b.shared) return;  // the system's part
  Knowledge& k = knowledge(t);
  const uint32_t i = k.index(t);
  touch(b, k, at, size, kind, event, i, i + 1);
}

}  // namespace

void access(Thread& t, const uint8_t* at, uint32_t size, uint32_t site, uint32_t access) {
  if (access & access_quiet) return;
  look_again();
  const uint32_t kind = access & access_kind;
  const bool strong = kind == access_atomic || access & access_strong;
  Resident* b = home(t, at);
  if (b) {
    Knowledge& k = knowledge(t);
    const Event event = event_of(k, t, strong ? How::strong : How::plain, site);
    if (kind != access_write) touch_by(t, *b, at, size, Touch::read, event);
    if (kind != access_read) touch_by(t, *b, at, size, Touch::write, event);
  } else {
    const auto address = reinterpret_cast<uint64_t>(at);
    if (kind != access_write) touch_global(t, address, size, Touch::read, site);
    if (kind != access_read) touch_global(t, address, size, Touch::write, site);
  }
  if (!strong) return;
  // Kinder than the rules, which want fences around relaxed accesses: no false alarm.
  Knowledge& k = knowledge(t);
  Published& location = k.location(at);
  const uint32_t i = k.index(t);
  if (kind != access_write) k.acquire(i, location);
  if (kind != access_read) {
    Told told;
    told.add(location.known);
    k.release(i, told);
    location = {told.all(), {}, {}};
  }
}

// --- blocks ---------------------------------------------------------------------------------------

void begin(Cluster& c) {
  look_again();
  delete c.watched.knowledge;
  c.watched.knowledge = new Knowledge;
  Knowledge& k = *c.watched.knowledge;
  k.generation = __atomic_add_fetch(&generations, 1, __ATOMIC_RELAXED);
  k.block_threads = uint32_t(c.blocks[0]->threads.size());
  const auto n = uint32_t(c.blocks.size()) * k.block_threads;
  k.threads.resize(n);
  for (Knower& knower : k.threads) {
    knower.own[lane_thread] = 1;
    knower.own[lane_copies] = knower.own[lane_bulk] = knower.own[lane_products] = 0;
  }
  k.lanes = k.fenced(n);
  k.barriers.resize(16 * c.blocks.size());
  k.opened.resize(16 * c.blocks.size());
  for (Resident* b : c.blocks) {
    if (!b->watched.shadow) b->watched.shadow = new Shadow;
    b->watched.shadow->cells.resize(b->shared_size);
  }
}

void forget(Resident& b) {
  delete b.watched.shadow;
  b.watched.shadow = nullptr;
}

void burnt(Thread& t, uint32_t site) {
  if (burns_launch != t.block->grid_id) burns.clear();
  burns_launch = t.block->grid_id;
  if (site >= burns.size()) burns.resize(site + 1);
  burns[site]++;
}

uint32_t hottest(Thread& t, uint32_t site) {
  if (burns_launch != t.block->grid_id) return site;
  for (uint32_t s = 0; s < burns.size(); s++)
    if (site >= burns.size() || burns[s] > burns[site]) site = s;
  return site;
}

void proxy_fence(Thread& t) {
  look_again();
  Knowledge& k = knowledge(t);
  k.fence(k.index(t));
}

// --- barriers -------------------------------------------------------------------------------------

void barrier_arrives(Thread& t, uint32_t id) {
  look_again();
  Knowledge& k = knowledge(t);
  k.release(k.index(t), k.barriers[t.block->cluster_rank * 16 + id]);
}

void barrier_opens(Resident& b, uint32_t id) {
  Knowledge& k = *b.cluster->watched.knowledge;
  const uint32_t number = b.cluster_rank * 16 + id;
  k.opened[number] = k.barriers[number].all();
  k.barriers[number] = {};
  const Barrier& bar = b.barriers[id];
  for (uint32_t warps = bar.warps; warps; warps &= warps - 1) {
    const Warp& warp = b.warps[__builtin_ctz(warps)];
    for (uint32_t lanes = bar.waiting[warp.index]; lanes; lanes &= lanes - 1)
      k.threads[k.index(warp.threads[__builtin_ctz(lanes)])].common = k.opened[number];
  }
}

void barrier_passes(Thread& t, uint32_t id) {
  Knowledge& k = knowledge(t);
  k.threads[k.index(t)].common = k.opened[t.block->cluster_rank * 16 + id];
}

void warp_meets(Warp& warp, uint32_t lanes) {
  look_again();
  Knowledge& k = knowledge(warp.threads[0]);
  Told told;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) k.release(k.index(warp.threads[__builtin_ctz(rest)]), told);
  const Shared all = told.all();
  for (uint32_t rest = lanes; rest; rest &= rest - 1) k.threads[k.index(warp.threads[__builtin_ctz(rest)])].common = all;
}

void cluster_arrives(Thread& t) {
  look_again();
  Knowledge& k = knowledge(t);
  k.release(k.index(t), k.cluster);
}

void cluster_opens(Cluster& c) {
  Knowledge& k = *c.watched.knowledge;
  k.cluster_over = {k.cluster.all(), {}, {}};
}

void cluster_passes(Thread& t) {
  Knowledge& k = knowledge(t);
  k.acquire(k.index(t), k.cluster_over);
}

// --- mbarriers ------------------------------------------------------------------------------------

void mbarrier_begins(Thread& t, const uint8_t* at, uint32_t site) {
  look_again();
  Knowledge& k = knowledge(t);
  k.mbarrier(at).pending = {};
  if (Resident* b = home(t, at)) touch_by(t, *b, at, 8, Touch::write, event_of(k, t, How::strong, site));
}

void mbarrier_used(Thread& t, const uint8_t* at, uint32_t site) {
  Resident* b = home(t, at);
  if (!b || at < b->shared) return;
  Knowledge& k = knowledge(t);
  const Cell& cell = b->watched.shadow->cells[uint32_t(at - b->shared)];
  if (cell.generation != k.generation || !cell.write.there) return;
  if (k.known(k.index(t), cell.write.lane) < cell.write.count)
    found_early_use(*b, k, uint32_t(at - b->shared), cell.write, event_of(k, t, How::plain, site));
}

void mbarrier_arrives(Thread& t, const uint8_t* at) {
  look_again();
  Knowledge& k = knowledge(t);
  k.release(k.index(t), k.mbarrier(at).pending);
}

void mbarrier_completes(Thread& t, const uint8_t* at) {
  Knowledge& k = knowledge(t);
  Mbarrier& m = k.mbarrier(at);
  m.pending.add(m.over.known);
  m.pending.raise(m.lane, ++m.phases);
  m.over = {m.pending.all(), {}, {}};
  m.pending = {};
}

void mbarrier_passes(Thread& t, const uint8_t* at) {
  look_again();
  Knowledge& k = knowledge(t);
  k.acquire(k.index(t), k.mbarrier(at).over);
}

// --- asynchronous work -----------------------------------------------------------------------------

void copy_begins(Thread& t, const uint8_t* to, uint32_t size, uint64_t sequence, uint32_t site) {
  look_again();
  if (Resident* b = home(t, to)) touch_by(t, *b, to, size, Touch::write, event_on(knowledge(t), t, lane_copies, sequence, site));
}

void copies_committed(Thread& t, uint64_t sequence) {
  Knowledge& k = knowledge(t);
  k.copy_groups.resize(k.threads.size());
  k.copy_groups[k.index(t)].push_back(sequence);
}

void copies_waited(Thread& t, uint64_t groups) {
  Knowledge& k = knowledge(t);
  if (groups) all_copies_waited(t, k.copy_groups[k.index(t)][groups - 1]);
}

void all_copies_waited(Thread& t, uint64_t sequence) {
  Knowledge& k = knowledge(t);
  uint32_t& own = k.threads[k.index(t)].own[lane_copies];
  if (own < sequence) own = uint32_t(sequence);
}

void copies_arrive(Thread& t, const uint8_t* barrier, uint64_t sequence) {
  Knowledge& k = knowledge(t);
  Mbarrier& m = k.mbarrier(barrier);
  uint32_t lanes[own_lanes];
  k.own(k.index(t), lanes);
  k.release(k.index(t), m.pending);
  if (sequence) m.pending.raise(lanes[lane_copies], uint32_t(sequence));
}

void bulk_writes(Thread& t, const uint8_t* to, uint32_t size, const uint8_t* barrier, bool reduces, uint32_t site) {
  look_again();
  Knowledge& k = knowledge(t);
  Resident* b = home(t, to);
  if (b) touch_by(t, *b, to, size, Touch::write, event_of_phase(k, t, barrier, reduces ? How::reduction : How::plain, site));
}

void bulk_reads(Thread& t, const uint8_t* from, uint32_t size, const uint8_t* barrier, uint32_t group, uint32_t site) {
  look_again();
  Knowledge& k = knowledge(t);
  Resident* b = home(t, from);
  if (!b) return;
  const Event event =
      barrier ? event_of_phase(k, t, barrier, How::plain, site) : event_on(k, t, lane_bulk, uint64_t(group) + 1, site);
  touch_by(t, *b, from, size, Touch::read, event);
}

void bulk_waited(Thread& t, uint32_t groups_left) {
  if (t.bulk_group <= groups_left) return;
  Knowledge& k = knowledge(t);
  uint32_t& own = k.threads[k.index(t)].own[lane_bulk];
  if (own < t.bulk_group - groups_left) own = t.bulk_group - groups_left;
}

void wgmma_reads(Thread& t, const WgmmaForm& form, const WgmmaOperands& operands, uint64_t number, uint32_t site) {
  look_again();
  Knowledge& k = knowledge(t);
  Resident& b = static_cast<Resident&>(*t.block);
  const uint32_t first = k.index(t) - t.linear % 128;
  const Event event = event_on(k, t, lane_products, number + 1, site);
  const auto read = [&](uint32_t address) {
    if (address >= shared_origin && address - shared_origin + 16 <= b.shared_size)
      touch(b, k, b.shared + (address - shared_origin), 16, Touch::read, event, first, first + 128);
  };
  wgmma_footprint(form, operands, [](void* f, uint32_t address) { (*static_cast<decltype(read)*>(f))(address); },
                  const_cast<void*>(static_cast<const void*>(&read)));
}

void product_read(Accumulators& acc, uint32_t index, uint32_t site) {
  if (acc.until[index]) found_unfinished(acc.thread, site);
}

void wgmma_waited(Thread& t, uint64_t products) {
  Knowledge& k = knowledge(t);
  uint32_t& own = k.threads[k.index(t)].own[lane_products];
  if (own < products) own = uint32_t(products);
}

const char* fields() {
  static std::string text;
  look_again();
  text = ",\"findings\":[" + found() + "],\"unwritten\":[" + unwritten() + "]";
  return text.c_str();
}

}  // namespace rt::watch
