// Tensor maps in an encoding of our own, and the boxes that they describe.
#pragma once
#include <vector>

#include "bulk.hpp"
#include "swizzle.hpp"

namespace rt {

// What the 128 opaque bytes hold here; tensor_map.py writes them. Lists are innermost first.
struct TensorMap {
  uint64_t magic;
  uint64_t address;
  uint64_t stride[4];  // bytes, of dimensions 1 to 4
  uint32_t last[5];    // extent minus one
  uint16_t box[5];
  uint8_t step[5];
  uint8_t type, rank, interleave, swizzle, fill, im2col;
  uint8_t padding[3];
  int16_t lower[3], upper[3];
  uint16_t channels, pixels;
  uint8_t zero[12];
  uint64_t check;  // FNV-1a over the bytes before
};
static_assert(sizeof(TensorMap) == 128);

uint64_t checksum(const TensorMap& map);
bool is_tensor_map(const TensorMap& map);

// A box of a tensor: `map` is a copy, since the descriptor may be gone when the copy is performed.
struct TensorBox {
  TensorMap map;
  Coordinates at;
};

// The map at a generic address, and the box at `at`; anything wrong with them is a fault of the thread.
TensorBox tensor_box(Thread& t, uint64_t map, Coordinates at, uint32_t site);
uint32_t box_bytes(const TensorBox& box);
Swizzle box_swizzle(const TensorBox& box);
// The box's elements from global memory in order, with the fill outside the tensor.
void gather_box(Thread& t, const TensorBox& box, uint8_t* into, uint32_t site);
// The elements that lie inside the tensor, from `from` to global memory.
void scatter_box(Thread& t, const TensorBox& box, const uint8_t* from, Reduction reduction, uint32_t site);

// reduce.cpp: *to = *to op *from for `bytes` bytes; false if there is no such operation.
bool reduce_bytes(uint8_t* to, const uint8_t* from, uint32_t bytes, Reduction reduction, Number number);
// Global memory of a running copy; a fault of the thread if it is not all in one buffer.
uint8_t* global_bytes(Thread& t, uint64_t address, uint64_t bytes, uint32_t site, uint32_t access);

}  // namespace rt
