// wmma.load and wmma.store: each lane moves its own part of the tile, element by element.
#pragma once
#include "mma.hpp"

namespace rt {

// Bits of one element, or of all that share a register.
template <uint32_t bytes>
struct Element;
template <>
struct Element<1> {
  using type = uint8_t;
};
template <>
struct Element<2> {
  using type = uint16_t;
};
template <>
struct Element<4> {
  using type = uint32_t;
};
template <>
struct Element<8> {
  using type = uint64_t;
};

// Calls f(register, part, row, column) for the elements of lane `lane`; `pairs` for accumulators.
template <Format F, uint32_t rows, uint32_t columns, bool pairs, class Function>
static inline void each_element(uint32_t lane, Function f) {
  constexpr uint32_t unit = pairs ? 2 : per_register(F), units = columns / unit;
  for (uint32_t w = lane % 4; w < units; w += 4)
    for (uint32_t r = lane / 4; r < rows; r += 8)
      for (uint32_t i = 0; i < unit; i++) {
        const uint32_t place = w / 4 * (rows / 8) + r / 8;
        const uint32_t index = place * unit + i;
        f(index / per_register(F), index % per_register(F), r, w * unit + i);
      }
}

// `at(offset)` gives a checked pointer to the element `offset` bytes behind the tile's address. Rows lie
// `stride` elements apart, or columns if `by_columns`.
template <Format F, uint32_t rows, uint32_t columns, bool pairs, class At>
static inline void wmma_load(uint32_t lane, bool by_columns, uint32_t stride, At at, typename RegisterOf<F>::type* to) {
  using Value = typename Element<size_of(F)>::type;
  for (uint32_t i = 0; i < registers(F, rows, columns); i++) to[i] = 0;
  each_element<F, rows, columns, pairs>(lane, [&](uint32_t index, uint32_t part, uint32_t r, uint32_t c) {
    const uint64_t offset = (by_columns ? uint64_t(c) * stride + r : uint64_t(r) * stride + c) * sizeof(Value);
    to[index] |= typename RegisterOf<F>::type(load<Value>(at(offset))) << part * 8 * sizeof(Value);
  });
}

template <Format F, uint32_t rows, uint32_t columns, class At>
static inline void wmma_store(uint32_t lane, bool by_columns, uint32_t stride, At at,
                              const typename RegisterOf<F>::type* from) {
  using Value = typename Element<size_of(F)>::type;
  each_element<F, rows, columns, true>(lane, [&](uint32_t index, uint32_t part, uint32_t r, uint32_t c) {
    const uint64_t offset = (by_columns ? uint64_t(c) * stride + r : uint64_t(r) * stride + c) * sizeof(Value);
    store<Value>(at(offset), Value(from[index] >> part * 8 * sizeof(Value)));
  });
}

}  // namespace rt
