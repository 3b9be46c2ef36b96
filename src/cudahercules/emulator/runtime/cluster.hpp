// Clusters: addresses in each other's shared memory, and their barrier.
//
// A shared address is rank << 24 | offset in the window of that block, as on hardware; the addresses of a
// block's own variables have its own rank in them. A generic address is a host address.
#pragma once
#include "device.hpp"

namespace rt {

// Memory at a shared::cluster address, checked: `size` bytes, aligned to `size` (a power of two).
uint8_t* cluster_at(Thread& t, uint64_t address, uint32_t size, uint32_t site, uint32_t access);
// The same without a condition on alignment.
uint8_t* cluster_bytes(Thread& t, uint64_t address, uint32_t size, uint32_t site, uint32_t access);

uint64_t map_shared(Thread& t, uint64_t address, uint32_t rank, uint32_t site);   // mapa.shared::cluster
uint64_t map_generic(Thread& t, uint64_t address, uint32_t rank, uint32_t site);  // mapa
uint32_t rank_of_shared(Thread& t, uint64_t address, uint32_t site);              // getctarank.shared::cluster
uint32_t rank_of_generic(Thread& t, uint64_t address, uint32_t site);             // getctarank

uint64_t peer_to_generic(Thread& t, uint64_t address);
uint64_t peer_to_shared(Thread& t, uint64_t address);
bool in_cluster_shared(Thread& t, uint64_t address);

static inline uint64_t to_generic(Thread& t, uint64_t address) {
  if ((address ^ t.block->shared_base) >> 24) return peer_to_generic(t, address);
  return reinterpret_cast<uint64_t>(t.block->shared) - t.block->shared_base + address;
}
static inline uint64_t to_shared(Thread& t, uint64_t address) {
  const uint64_t offset = address - (reinterpret_cast<uint64_t>(t.block->shared) - shared_origin);
  if (offset > t.block->shared_size + shared_origin) return peer_to_shared(t, address);
  return offset + (t.block->shared_base - shared_origin);
}

void cluster_arrive(Thread& t, uint32_t site);
void cluster_wait(Thread& t, uint32_t site);

}  // namespace rt
