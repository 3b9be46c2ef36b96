// Asynchronous copies under way in a cluster, and the moments at which they are performed.
//
// A copy has two halves: its source is read, then its bytes land and its mbarrier is told. `eager` does both at
// issue. `late` does them when somebody could not go on otherwise: for copies that signal an mbarrier, when no
// thread of the cluster can run and one waits for that mbarrier; for grouped ones at the thread's own wait
// (`.read`: the first half only), the second half of those at the end of the cluster. `random` does one or both
// halves of any copy at any moment in between.
#include "bulk.hpp"

#include <cstring>

#include "state.hpp"
#include "tma.hpp"

namespace rt {

namespace {

constexpr uint32_t no_group = 0xffffffffu;

}  // namespace

struct BulkOperation {
  Thread* thread;
  uint32_t site;
  uint32_t group;              // of the thread; no_group for copies that signal an mbarrier
  bool read;                   // the source has been read into `data`
  bool tensor;
  bool arrival;                // no copy: the thread's cp.async copies up to `sequence`, then an arrival
  uint32_t size;               // bytes
  uint8_t* barrier;
  uint8_t* to;
  const uint8_t* from;
  Resident* to_block;          // whose shared memory is written, or null
  Resident* from_block;        // whose shared memory is read, or null
  Reduction reduction;
  Number number;
  uint64_t sequence;
  TensorBox box;
  std::vector<uint8_t> data;
};

namespace {

Cluster& cluster_of(Thread& t) { return *static_cast<Resident&>(*t.block).cluster; }

[[noreturn]] void bulk_fault(Thread& t, uint32_t site, const char* kind, const std::string& what) {
  fault(t, site, kind, "\"detail\":" + quoted(what));
}

}  // namespace

struct BulkQueue {
  std::vector<BulkOperation> operations;
};

namespace {

// Shared memory of a block in boxes: 16-byte units, permuted by the swizzle over window addresses.
template <class F>
void each_unit(const Resident& b, const uint8_t* begin, uint32_t size, Swizzle swizzle, F f) {
  const auto window = uint32_t(begin - b.shared) + shared_origin;
  for (uint32_t i = 0; i < size; i += 16) f(b.shared + (swizzled(window + i, swizzle) - shared_origin), i);
}

void read_source(BulkOperation& op) {
  if (op.read) return;
  op.read = true;
  if (op.arrival) return;
  op.data.resize(op.size);
  if (op.tensor && !op.from_block)
    gather_box(*op.thread, op.box, op.data.data(), op.site);
  else if (op.tensor)
    each_unit(*op.from_block, op.from, op.size, box_swizzle(op.box),
              [&](const uint8_t* at, uint32_t i) { memcpy(op.data.data() + i, at, 16); });
  else
    memcpy(op.data.data(), op.from, op.size);
}

void write_target(BulkOperation& op) {
  if (op.arrival) {
    async_perform(*op.thread, op.sequence);
    mbarrier_arrive(*op.thread, op.barrier, 1, false, false, op.site);
    return;
  }
  if (op.tensor && op.to_block)
    each_unit(*op.to_block, op.to, op.size, box_swizzle(op.box),
              [&](uint8_t* at, uint32_t i) { memcpy(at, op.data.data() + i, 16); });
  else if (op.tensor)
    scatter_box(*op.thread, op.box, op.data.data(), op.reduction, op.site);
  else if (op.reduction == Reduction::none)
    memcpy(op.to, op.data.data(), op.size);
  else if (!reduce_bytes(op.to, op.data.data(), op.size, op.reduction, op.number))
    bulk_fault(*op.thread, op.site, "bulk_copy", "a reduction that the type does not have");
  if (op.barrier) mbarrier_complete(*op.thread, op.barrier, op.size, op.site);
}

void perform_at(Cluster& c, size_t index) {
  // Out of the queue first: what the mbarrier then does must not find this copy under way.
  BulkOperation op = std::move(c.bulk->operations[index]);
  c.bulk->operations.erase(c.bulk->operations.begin() + long(index));
  read_source(op);
  write_target(op);
  c.events++;
}

bool awaited(const Cluster& c, const BulkOperation& op) {
  if (!op.barrier) return false;
  for (const Resident* b : c.blocks)
    for (const Thread* t : b->mbarrier_waiters)
      if (t->awaited == op.barrier) return true;
  return false;
}

// What a copy that begins reads and writes of shared memory.
void tell(const BulkOperation& op) {
  if (op.arrival) return;
  const auto units = [&](Resident& b, const uint8_t* begin, auto f) {
    if (op.tensor && !(op.to_block && op.from_block))
      each_unit(b, begin, op.size, box_swizzle(op.box), [&](const uint8_t* at, uint32_t) { f(at, 16u); });
    else
      f(begin, op.size);
  };
  const bool reduces = op.reduction != Reduction::none;
  if (op.from_block)
    units(*op.from_block, op.from, [&](const uint8_t* at, uint32_t size) {
      watch::bulk_reads(*op.thread, at, size, op.barrier, op.group, op.site);
    });
  if (op.to_block)
    units(*op.to_block, op.to, [&](const uint8_t* at, uint32_t size) {
      watch::bulk_writes(*op.thread, at, size, op.barrier, reduces, op.site);
    });
}

void issue(BulkOperation&& op) {
  Cluster& c = cluster_of(*op.thread);
  tell(op);
  if (job.asynchrony == Asynchrony::eager) {
    read_source(op);
    write_target(op);
    return;
  }
  if (!c.bulk) c.bulk = new BulkQueue;
  c.bulk->operations.push_back(std::move(op));
  bulk_chance(c);
}

BulkOperation begun(Thread& t, uint32_t size, uint32_t site) {
  BulkOperation op{};
  op.thread = &t;
  op.site = site;
  op.size = size;
  op.group = no_group;
  return op;
}

void check_linear(Thread& t, uint64_t to, uint64_t from, uint32_t size, uint32_t site) {
  const char* what = to % 16     ? "the destination of a bulk copy is not aligned to 16 bytes"
                     : from % 16 ? "the source of a bulk copy is not aligned to 16 bytes"
                     : size % 16 ? "the size of a bulk copy is no multiple of 16 bytes"
                                 : nullptr;
  if (what) bulk_fault(t, site, "bulk_copy", std::string(what) + (size % 16 ? " (" + std::to_string(size) + ")" : ""));
}

// The destination and the mbarrier of a copy into shared memory, in one block.
void set_shared_target(BulkOperation& op, uint64_t to, uint64_t barrier, uint32_t room) {
  Thread& t = *op.thread;
  if (to >> 24 != barrier >> 24)
    bulk_fault(t, op.site, "bulk_copy", "a copy into one block's shared memory signals an mbarrier in another's");
  op.to = cluster_bytes(t, to, room, op.site, access_write);
  op.to_block = block_of_shared(cluster_of(t), op.to);
  op.barrier = cluster_at(t, barrier, 8, op.site, access_atomic | access_quiet);
}

void set_shared_source(BulkOperation& op, uint64_t from, uint32_t room) {
  Thread& t = *op.thread;
  op.from = cluster_bytes(t, from, room, op.site, access_read);
  op.from_block = block_of_shared(cluster_of(t), op.from);
  if (op.from_block != t.block)
    bulk_fault(t, op.site, "bulk_copy", "the source of a bulk copy lies in another block's shared memory");
}

// Issues `op` once, or once for each block of the mask, at the same place of each.
void issue_to_all(const BulkOperation& op, uint64_t to, uint64_t barrier, Multicast m, uint32_t room) {
  Thread& t = *op.thread;
  if (!m.given) {
    BulkOperation one = op;
    set_shared_target(one, to, barrier, room);
    issue(std::move(one));
    return;
  }
  const uint32_t size = t.block->cluster_size;
  if (!m.blocks || m.blocks >> size)
    bulk_fault(t, op.site, "bulk_copy",
               "the multicast mask " + std::to_string(m.blocks) + " names blocks outside the cluster of " + std::to_string(size));
  for (uint32_t rank = 0; rank < size; rank++) {
    if (!(m.blocks >> rank & 1)) continue;
    BulkOperation one = op;
    set_shared_target(one, (to & 0xffffff) | rank << 24, (barrier & 0xffffff) | rank << 24, room);
    issue(std::move(one));
  }
}

// Room that a box takes in shared memory: a swizzle permutes whole lines of 128 bytes.
uint32_t box_room(Thread& t, const TensorBox& box, uint64_t shared, uint32_t site) {
  if (shared % 128) bulk_fault(t, site, "bulk_copy", "tensor copy: the address in shared memory is not aligned to 128 bytes");
  const uint32_t bytes = box_bytes(box);
  return box_swizzle(box) == Swizzle::none ? bytes : (bytes + 127) / 128 * 128;
}

}  // namespace

// --- when ---------------------------------------------------------------------------------------

uint32_t random_below(Cluster& c, uint32_t n) {
  uint64_t z = c.random += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return uint32_t((z ^ z >> 31) >> 33) % n;
}

// A moment at which copies may be performed or not.
void bulk_chance(Cluster& c) {
  if (job.asynchrony != Asynchrony::random || !c.bulk) return;
  while (!c.bulk->operations.empty() && random_below(c, 3) == 0) {
    const uint32_t index = random_below(c, uint32_t(c.bulk->operations.size()));
    if (random_below(c, 2))
      perform_at(c, index);
    else
      read_source(c.bulk->operations[index]);
  }
}

// No thread can run: perform a copy that one waits for, or with `anything` some other; false if there is none.
bool bulk_progress(Cluster& c, bool anything) {
  auto& operations = c.bulk->operations;
  if (operations.empty()) return false;
  if (job.asynchrony == Asynchrony::random && anything) {
    perform_at(c, random_below(c, uint32_t(operations.size())));
    return true;
  }
  for (size_t i = 0; i < operations.size(); i++)
    if (awaited(c, operations[i])) {
      perform_at(c, i);
      return true;
    }
  if (!anything) return false;
  perform_at(c, 0);
  return true;
}

// A block's shared memory ends with its last thread; arrivals at its mbarriers no longer matter.
void bulk_after_exit(Resident& b) {
  if (!b.cluster->bulk) return;
  std::erase_if(b.cluster->bulk->operations, [&](const BulkOperation& op) { return op.arrival && op.thread->block == &b; });
  for (BulkOperation& op : b.cluster->bulk->operations) {
    // Grouped stores still read it: code that ships (DeepGEMM) leaves its last store to the hardware.
    if (op.from_block == &b && op.group != no_group) read_source(op);
    if (op.from_block == &b && !op.read)
      bulk_fault(*op.thread, op.site, "missing_wait",
                 "a block exits while a bulk copy still reads its shared memory: nobody waited for its mbarrier");
    if (op.to_block == &b)
      bulk_fault(*op.thread, op.site, "missing_wait",
                 "a block exits while a copy into its shared memory is under way: nobody waited for its mbarrier");
  }
}

// All threads have exited: what is left are stores that have read their sources.
void bulk_finish(Cluster& c) {
  while (c.bulk && !c.bulk->operations.empty()) perform_at(c, 0);
}

bool bulk_pending_on(const Cluster& c, const uint8_t* barrier, uint32_t& site) {
  if (!c.bulk) return false;
  for (const BulkOperation& op : c.bulk->operations)
    if (op.barrier == barrier && !op.arrival) {
      site = op.site;
      return true;
    }
  return false;
}

void bulk_commit(Thread& t) {
  t.asynchronous = true;
  t.bulk_group++;
}

void bulk_wait(Thread& t, uint32_t groups_left, bool only_reads) {
  Cluster& c = cluster_of(t);
  watch::bulk_waited(t, groups_left);
  if (!c.bulk || t.bulk_group <= groups_left) return;
  auto& operations = c.bulk->operations;
  for (size_t i = 0; i < operations.size();) {
    BulkOperation& op = operations[i];
    if (op.thread != &t || op.group == no_group || op.group >= t.bulk_group - groups_left) {
      i++;
    } else if (only_reads) {
      read_source(op);
      i++;
    } else {
      perform_at(c, i);
    }
  }
}

// --- what ---------------------------------------------------------------------------------------

void bulk_load(Thread& t, uint64_t to, uint64_t from, uint32_t size, uint64_t barrier, Multicast m, uint32_t site) {
  check_linear(t, to, from, size, site);
  BulkOperation op = begun(t, size, site);
  op.from = global_bytes(t, from, size, site, access_read);
  issue_to_all(op, to, barrier, m, size);
}

void bulk_store(Thread& t, uint64_t to, uint64_t from, uint32_t size, Reduction reduction, Number number, uint32_t site) {
  check_linear(t, to, from, size, site);
  BulkOperation op = begun(t, size, site);
  set_shared_source(op, from, size);
  op.to = global_bytes(t, to, size, site, access_write);
  op.group = t.bulk_group;
  op.reduction = reduction;
  op.number = number;
  issue(std::move(op));
}

void bulk_send(Thread& t, uint64_t to, uint64_t from, uint32_t size, uint64_t barrier, Reduction reduction,
               Number number, uint32_t site) {
  check_linear(t, to, from, size, site);
  BulkOperation op = begun(t, size, site);
  set_shared_source(op, from, size);
  set_shared_target(op, to, barrier, size);
  op.reduction = reduction;
  op.number = number;
  issue(std::move(op));
}

void bulk_tensor_load(Thread& t, uint64_t to, uint64_t map, Coordinates at, uint64_t barrier, Multicast m, uint32_t site) {
  BulkOperation op = begun(t, 0, site);
  op.tensor = true;
  op.box = tensor_box(t, map, at, site);
  op.size = box_bytes(op.box);
  issue_to_all(op, to, barrier, m, box_room(t, op.box, to, site));
}

void bulk_tensor_store(Thread& t, uint64_t map, Coordinates at, uint64_t from, Reduction reduction, uint32_t site) {
  BulkOperation op = begun(t, 0, site);
  op.tensor = true;
  op.box = tensor_box(t, map, at, site);
  for (uint32_t k = 0; k < at.rank && reduction == Reduction::none; k++)  // an illegal instruction on an H200
    if (at.at[k] < 0) bulk_fault(t, site, "bulk_copy", "tensor copy: a store at a negative coordinate");
  op.size = box_bytes(op.box);
  op.group = t.bulk_group;
  op.reduction = reduction;
  set_shared_source(op, from, box_room(t, op.box, from, site));
  issue(std::move(op));
}

void bulk_prefetch(Thread& t, uint64_t from, uint32_t size, uint32_t site) {
  check_linear(t, 0, from, size, site);
  global_bytes(t, from, size, site, access_read);
}

void bulk_tensor_prefetch(Thread& t, uint64_t map, Coordinates at, uint32_t site) { tensor_box(t, map, at, site); }

void send_async(Thread& t, uint64_t to, const void* data, uint32_t size, uint64_t barrier, Reduction reduction,
                Number number, uint32_t site) {
  BulkOperation op = begun(t, size, site);
  set_shared_target(op, to, barrier, size);
  cluster_at(t, to, size, site, access_write | access_quiet);
  op.data.assign(static_cast<const uint8_t*>(data), static_cast<const uint8_t*>(data) + size);
  op.read = true;
  op.reduction = reduction;
  op.number = number;
  issue(std::move(op));
}

// The arrival of a thread's cp.async copies so far.
void bulk_arrival(Thread& t, uint8_t* barrier, uint64_t sequence, uint32_t site) {
  BulkOperation op = begun(t, 0, site);
  op.arrival = true;
  op.barrier = barrier;
  op.sequence = sequence;
  issue(std::move(op));
}

}  // namespace rt
