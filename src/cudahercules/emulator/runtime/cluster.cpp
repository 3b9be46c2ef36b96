// What threads of a cluster do to each other's blocks.
#include "state.hpp"

namespace rt {

namespace {

Resident& own(Thread& t) { return static_cast<Resident&>(*t.block); }

[[noreturn]] void cluster_misuse(Thread& t, uint32_t site, const std::string& what) {
  fault(t, site, "cluster_misuse", "\"detail\":" + quoted(what));
}

Resident& peer(Thread& t, uint64_t rank, uint32_t site) {
  const Cluster& c = *own(t).cluster;
  if (rank >= c.blocks.size())
    cluster_misuse(t, site, "an address in shared memory of block " + std::to_string(rank) + " of a cluster of " +
                                std::to_string(c.blocks.size()));
  return *c.blocks[rank];
}

// Shared memory lives as long as its block: from its first instruction to its last.
void check_alive(Thread& t, const Resident& b, uint32_t site) {
  if (!b.alive)
    cluster_misuse(t, site, "access to shared memory of block " + std::to_string(b.cluster_rank) +
                                " of the cluster, which has exited (wait with barrier.cluster before leaving)");
  if (!b.begun)
    cluster_misuse(t, site, "access to shared memory of block " + std::to_string(b.cluster_rank) +
                                " of the cluster, which may not have begun yet (meet at barrier.cluster first)");
}

[[noreturn]] void outside(Thread& t, const Resident& b, uint32_t offset, uint32_t size, uint32_t site, uint32_t access) {
  const bool inside = uint64_t(offset) + size <= b.shared_size;
  fault(t, site, inside ? "misaligned" : "out_of_bounds",
        "\"offset\":" + std::to_string(int32_t(offset)) + ",\"size\":" + std::to_string(size) +
            ",\"access\":" + std::to_string(access & access_kind) + ",\"space\":\"shared\",\"limit\":" +
            std::to_string(b.shared_size) + ",\"dynamic\":" + std::to_string(b.shared_dynamic) +
            ",\"rank\":" + std::to_string(b.cluster_rank));
}

}  // namespace

// The block of the cluster in whose shared memory (system part included) `at` lies, or null.
Resident* block_of_shared(const Cluster& c, const uint8_t* at) {
  for (Resident* b : c.blocks)
    if (in_shared_of(*b, reinterpret_cast<uint64_t>(at))) return b;
  return nullptr;
}

uint8_t* cluster_bytes(Thread& t, uint64_t address, uint32_t size, uint32_t site, uint32_t access) {
  Resident& b = peer(t, address >> 24, site);
  check_alive(t, b, site);
  const uint32_t offset = uint32_t(address & 0xffffff) - shared_origin;
  if (offset > b.shared_size || size > b.shared_size - offset) outside(t, b, offset, size, site, access);
  return b.shared + offset;
}

uint8_t* cluster_at(Thread& t, uint64_t address, uint32_t size, uint32_t site, uint32_t access) {
  uint8_t* at = cluster_bytes(t, address, size, site, access);
  if (address & (size - 1)) outside(t, peer(t, address >> 24, site), uint32_t(address & 0xffffff) - shared_origin, size, site, access);
  watch::access(t, at, size, site, access);
  return at;
}

uint64_t map_shared(Thread& t, uint64_t address, uint32_t rank, uint32_t site) {
  peer(t, rank, site);
  return (address & 0xffffff) | uint64_t(rank) << 24;
}

uint64_t map_generic(Thread& t, uint64_t address, uint32_t rank, uint32_t site) {
  const Resident* b = block_of_shared(*own(t).cluster, reinterpret_cast<const uint8_t*>(address));
  if (!b) cluster_misuse(t, site, "mapa of a generic address that does not lie in shared memory");
  return address - reinterpret_cast<uint64_t>(b->shared) + reinterpret_cast<uint64_t>(peer(t, rank, site).shared);
}

uint32_t rank_of_shared(Thread& t, uint64_t address, uint32_t site) { return peer(t, address >> 24, site).cluster_rank; }

uint32_t rank_of_generic(Thread& t, uint64_t address, uint32_t site) {
  const Resident* b = block_of_shared(*own(t).cluster, reinterpret_cast<const uint8_t*>(address));
  if (!b) cluster_misuse(t, site, "getctarank of a generic address that does not lie in shared memory");
  return b->cluster_rank;
}

// Outside every window of the cluster there is no generic address; what comes out faults when it is used.
uint64_t peer_to_generic(Thread& t, uint64_t address) {
  const Cluster& c = *own(t).cluster;
  const Block& b = address >> 24 < c.blocks.size() ? *c.blocks[address >> 24] : *t.block;
  return reinterpret_cast<uint64_t>(b.shared) - b.shared_base + address;
}

uint64_t peer_to_shared(Thread& t, uint64_t address) {
  for (const Resident* b : own(t).cluster->blocks) {
    const uint64_t offset = address - (reinterpret_cast<uint64_t>(b->shared) - shared_origin);
    if (offset <= b->shared_size + shared_origin) return offset + (b->shared_base - shared_origin);
  }
  return address - reinterpret_cast<uint64_t>(t.block->shared) + t.block->shared_base;
}

bool in_cluster_shared(Thread& t, uint64_t address) {
  return block_of_shared(*own(t).cluster, reinterpret_cast<const uint8_t*>(address)) != nullptr;
}

// A generic access that is in no window of the own block: another block's, or no shared memory at all (null).
uint8_t* peer_at(Thread& t, uint64_t address, uint32_t size, uint32_t site, uint32_t access) {
  Resident* b = block_of_shared(*own(t).cluster, reinterpret_cast<const uint8_t*>(address));
  if (!b) return nullptr;
  check_alive(t, *b, site);
  const auto offset = uint32_t(address - reinterpret_cast<uint64_t>(b->shared));
  if (offset > b->shared_size || size > b->shared_size - offset || address % size) outside(t, *b, offset, size, site, access);
  return reinterpret_cast<uint8_t*>(address);
}

// --- barrier.cluster ------------------------------------------------------------------------------

namespace {

void end_phase(Cluster& c) {
  watch::cluster_opens(c);
  c.arrived = 0;
  c.phase++;
  c.events++;
  for (Resident* b : c.blocks) {
    b->progress++;
    for (Warp& warp : b->warps) {
      uint32_t lanes = 0;
      for (uint32_t rest = warp.alive; rest; rest &= rest - 1) {
        const uint32_t lane = uint32_t(__builtin_ctz(rest));
        if (warp.threads[lane].wait == Wait::cluster) lanes |= 1u << lane;
      }
      make_runnable(*b, warp, lanes);
    }
  }
}

}  // namespace

void cluster_arrive(Thread& t, uint32_t site) {
  Cluster& c = *own(t).cluster;
  if (t.cluster_arrived)
    cluster_misuse(t, site, "a thread arrives at barrier.cluster twice without barrier.cluster.wait in between");
  t.cluster_arrived = t.asynchronous = true;
  t.cluster_phase = c.phase;
  bulk_chance(c);
  watch::cluster_arrives(t);
  if (++c.arrived >= c.alive) end_phase(c);
}

void cluster_wait(Thread& t, uint32_t site) {
  const Cluster& c = *own(t).cluster;
  if (!t.cluster_arrived) cluster_misuse(t, site, "barrier.cluster.wait without barrier.cluster.arrive before it");
  if (c.phase == t.cluster_phase) {
    t.wait = Wait::cluster;
    t.site = site;
    suspend(t);
  }
  t.cluster_arrived = false;
  watch::cluster_passes(t);
}

// Threads that have exited (and are no longer counted as alive) are not waited for.
void cluster_after_exit(Thread& t) {
  Cluster& c = *own(t).cluster;
  if (t.cluster_arrived && t.cluster_phase == c.phase) c.arrived--;
  if (c.arrived && c.arrived >= c.alive) end_phase(c);
}

}  // namespace rt
