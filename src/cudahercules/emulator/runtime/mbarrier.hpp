// mbarrier objects in shared memory. A cluster stays on one OS thread: plain code is atomic.
//
// Our layout of the opaque 64 bits: arrivals still missing (20), arrivals of a phase (20), bytes still
// missing (21, two's complement), a mark (2: memory that was never initialised does not have it), number of
// the phase modulo 2 (1).
#pragma once
#include "device.hpp"

namespace rt {

constexpr uint64_t mbarrier_count = (1u << 20) - 1;
constexpr uint64_t mbarrier_phase = 1ull << 63;
constexpr uint64_t mbarrier_mark = 1ull << 61;
constexpr uint64_t mbarrier_mark_bits = 3ull << 61;
constexpr unsigned mbarrier_bytes_at = 40;
constexpr uint64_t mbarrier_bytes = ((1ull << 21) - 1) << mbarrier_bytes_at;

static inline uint32_t mbarrier_missing(uint64_t state) { return uint32_t(state & mbarrier_count); }
static inline uint32_t mbarrier_expected(uint64_t state) { return uint32_t(state >> 20 & mbarrier_count); }
// Bytes that the phase still waits for: negative if more came than were announced.
static inline int32_t mbarrier_missing_bytes(uint64_t state) {
  return int32_t(uint32_t(state >> mbarrier_bytes_at) << 11) >> 11;
}

void mbarrier_init(Thread& t, uint8_t* at, uint32_t count, uint32_t site);
void mbarrier_inval(Thread& t, uint8_t* at, uint32_t site);
void mbarrier_more(Thread& t, uint8_t* at, uint32_t site);  // one arrival more in this phase
void mbarrier_expect(Thread& t, uint8_t* at, uint32_t bytes, uint32_t site);
void mbarrier_complete(Thread& t, uint8_t* at, uint32_t bytes, uint32_t site);
// Gives the state before: its phase is the one in which this thread arrived. `drop` lowers the count of the
// next phases too; `stays` says that the arrival must not complete the phase.
uint64_t mbarrier_arrive(Thread& t, uint8_t* at, uint32_t count, bool drop, bool stays, uint32_t site);
// Whether the phase of parity `phase` is over. If it is not, other threads run first.
bool mbarrier_wait(Thread& t, uint8_t* at, bool phase, uint32_t site);

}  // namespace rt
