// mbarrier objects in shared memory of the own block. A block stays on one OS thread: plain code is atomic.
//
// Our layout of the opaque 64 bits: arrivals still missing (20), arrivals of a phase (20), bytes still
// missing (22, two's complement), number of the phase modulo 2 (top bit).
#pragma once
#include "device.hpp"

namespace rt {

constexpr uint64_t mbarrier_count = (1u << 20) - 1;
constexpr uint64_t mbarrier_phase = 1ull << 63;
constexpr uint64_t mbarrier_bytes = ((1ull << 22) - 1) << 40;

static inline void mbarrier_init(uint8_t* at, uint32_t count) {
  store<uint64_t>(at, uint64_t(count & mbarrier_count) | uint64_t(count & mbarrier_count) << 20);
}

// A phase ends when neither arrivals nor bytes are missing.
static inline uint64_t mbarrier_settled(uint64_t state) {
  if (state & mbarrier_count || state & mbarrier_bytes) return state;
  return (state ^ mbarrier_phase) | (state >> 20 & mbarrier_count);
}

static inline uint64_t mbarrier_expect(uint8_t* at, uint32_t bytes) {
  const auto state = load<uint64_t>(at);
  store<uint64_t>(at, (state & ~mbarrier_bytes) | ((state + (uint64_t(bytes) << 40)) & mbarrier_bytes));
  return state;
}

static inline void mbarrier_complete(uint8_t* at, uint32_t bytes) {
  mbarrier_expect(at, 0u - bytes);
  store<uint64_t>(at, mbarrier_settled(load<uint64_t>(at)));
}

// Gives the state before: its phase is the one in which this thread arrived.
static inline uint64_t mbarrier_arrive(uint8_t* at, uint32_t count, bool drop) {
  const auto before = load<uint64_t>(at);
  uint64_t state = (before & ~mbarrier_count) | ((before - count) & mbarrier_count);
  if (drop) state -= uint64_t(count) << 20;
  store<uint64_t>(at, mbarrier_settled(state));
  return before;
}

static inline bool mbarrier_done(uint8_t* at, bool phase) { return (load<uint64_t>(at) >> 63 != 0) != phase; }
static inline uint32_t mbarrier_missing(uint64_t state) { return uint32_t(state & mbarrier_count); }

}  // namespace rt
