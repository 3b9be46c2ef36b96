// wgmma: products of a warpgroup (four warps) out of shared memory that nobody may rely on before the wait.
//
// A thread that issues a wgmma only writes down its part of it. When all 128 threads have done so the product
// may be computed: at once, when a wait demands it, or at either time, as the run's mode says. That is when
// shared memory is read. Whatever the mode, from the issue to the thread's own wait the accumulators hold
// poison, as their value is undefined. Products that are never committed or waited for never show.
#pragma once
#include "mma.hpp"

namespace rt {

// What the instruction says: the same for all threads of a warpgroup.
struct WgmmaForm {
  uint16_t columns;
  Format d, a, b;
  bool a_in_registers, a_transposed, b_transposed, a_negated, b_negated, saturate;
};
// One wgmma of a function; `index` says which accumulators its registers of D are, in order.
struct WgmmaSite {
  WgmmaForm form;
  const uint16_t* index;
};
struct WgmmaOperands {
  uint64_t a, b;  // descriptors
  bool keep;      // scale-d: D is added to, not overwritten
  uint32_t a_registers[4];
};

// The registers of one call of a function that wgmma may be writing at any time. `shadow` holds what a register
// will hold after the products issued so far; `until` counts those products (of this thread), 0 outside.
struct Accumulators {
  Thread& thread;
  uint32_t count;
  bool used;
  uint32_t *value, *shadow, *until;
};
template <uint32_t N>
struct AccumulatorArray : Accumulators {
  uint32_t values[N]{}, shadows[N], untils[N]{};
  explicit AccumulatorArray(Thread& t) : Accumulators{t, N, false, values, shadows, untils} {}
  AccumulatorArray(const AccumulatorArray&) = delete;
  ~AccumulatorArray();
};

void wgmma_issue(Thread& t, Accumulators& acc, const WgmmaSite& wgmma, const WgmmaOperands& operands, uint32_t site);
void wgmma_fence(Thread& t, uint32_t site);
void wgmma_commit(Thread& t, uint32_t site);
void wgmma_wait(Thread& t, uint32_t groups_left, uint32_t site);
// Register `to` was given the value of register `from`, which may still be on its way.
void wgmma_moved(Accumulators& acc, uint32_t to, uint32_t from);
void wgmma_leave(Accumulators& acc);

template <uint32_t N>
inline AccumulatorArray<N>::~AccumulatorArray() {
  if (__builtin_expect(used, 0)) wgmma_leave(*this);
}

// One product, as a pure function over the operands of 128 threads. `shared` is the window's address 0, of
// which [begin, end) is the block's. Gives the first 16 bytes outside it that a descriptor names, or 0.
struct WgmmaThread {
  uint32_t* values;
  const uint16_t* index;
  uint32_t a[4];
};
// Calls f(context, address) for each 16 bytes of the window that the product reads.
void wgmma_footprint(const WgmmaForm& form, const WgmmaOperands& operands, void (*f)(void*, uint32_t), void* context);
uint32_t wgmma_compute(const WgmmaForm& form, const WgmmaOperands& operands, WgmmaThread* threads, const uint8_t* shared,
                       uint32_t begin, uint32_t end);

}  // namespace rt
