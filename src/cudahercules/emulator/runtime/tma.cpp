// Boxes of tensors, element by element where they reach over the edge, row by row inside.
#include "tma.hpp"

#include <cstring>

#include "state.hpp"

namespace rt {

namespace {

constexpr uint64_t tensor_magic = 0x70614d5363726548ull;

// By CUtensorMapDataType, up to TFLOAT32_FTZ.
constexpr uint32_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
enum : uint32_t { type_f16 = 6, type_f32 = 7, type_f64 = 8, type_bf16 = 9, type_f32_ftz = 10, type_tf32 = 11, type_tf32_ftz = 12 };

[[noreturn]] void tensor_fault(Thread& t, uint32_t site, const std::string& what) {
  fault(t, site, "bulk_copy", "\"detail\":" + quoted("tensor copy: " + what));
}

uint32_t extent(const TensorMap& m, uint32_t k) { return k ? (m.box[k] + m.step[k] - 1u) / m.step[k] : m.box[0]; }
int64_t dimension(const TensorMap& m, uint32_t k) { return int64_t(m.last[k]) + 1; }

// Calls f(offset in the box, global address of the row's coordinate 0 in the tensor, inside) for each row of
// the box; `inside` says that only the innermost coordinate can leave the tensor.
template <class F>
void each_row(const TensorBox& box, F f) {
  const TensorMap& m = box.map;
  const uint32_t row = m.box[0] * element_bytes[m.type];
  uint32_t index[5] = {};
  for (uint32_t offset = 0;; offset += row) {
    bool inside = true;
    uint64_t address = m.address;
    for (uint32_t k = 1; k < m.rank; k++) {
      const int64_t c = int64_t(box.at.at[k]) + int64_t(index[k]) * m.step[k];
      inside &= c >= 0 && c < dimension(m, k);
      address += uint64_t(c) * m.stride[k - 1];
    }
    f(offset, address, inside);
    uint32_t k = 1;
    while (k < m.rank && ++index[k] == extent(m, k)) index[k++] = 0;
    if (k >= m.rank) return;
  }
}

struct Span {
  uint32_t first, last;  // elements of a row of the box that lie in the tensor
};
Span inner_span(const TensorBox& box) {
  const int64_t c = box.at.at[0], n = dimension(box.map, 0), width = box.map.box[0];
  const int64_t first = c < 0 ? -c : 0, last = n - c < width ? n - c : width;
  if (first >= last) return {0, 0};
  return {uint32_t(first), uint32_t(last)};
}

// One element of what stands outside the tensor: an H200 fills every type with this NaN of fp16.
uint64_t fill_pattern(const TensorMap& m) { return m.fill ? 0x7ff77ff77ff77ff7ull : 0; }

// Loads round to tf32, but do not flush on an H200, whatever the type is called; reductions do.
void convert_elements(const TensorMap& m, uint8_t* bytes, uint32_t size) {
  if (m.type < type_tf32) return;
  for (uint32_t i = 0; i < size; i += 4) {
    auto bits = load<uint32_t>(bytes + i);
    const uint32_t exponent = bits >> 23 & 0xff;
    if (exponent != 0xff) bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    store(bytes + i, bits);
  }
}

Number number_of(const TensorMap& m) {
  constexpr Number numbers[] = {Number::u32, Number::u32, Number::u32, Number::s32,  Number::u64, Number::s64, Number::f16,
                                Number::f32, Number::f64, Number::bf16, Number::f32_ftz, Number::f32, Number::f32_ftz};
  return numbers[m.type];
}

}  // namespace

uint64_t checksum(const TensorMap& map) {
  uint64_t hash = 0xcbf29ce484222325ull;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&map);
  for (size_t i = 0; i < offsetof(TensorMap, check); i++) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hash;
}

bool is_tensor_map(const TensorMap& map) { return map.magic == tensor_magic && map.check == checksum(map); }

uint8_t* global_bytes(Thread& t, uint64_t address, uint64_t bytes, uint32_t site, uint32_t access) {
  const Range* r = find_range(address);
  if (!r || address - r->lo + bytes > r->size || ((access & access_kind) != access_read && !r->writable))
    fault(t, site, "out_of_bounds",
          "\"address\":" + std::to_string(address) + ",\"size\":" + std::to_string(bytes) + ",\"access\":" +
              std::to_string(access & access_kind) + ",\"space\":\"global\"");
  if (bytes) watch::access(t, reinterpret_cast<uint8_t*>(address), uint32_t(bytes), site, access);
  return reinterpret_cast<uint8_t*>(address);
}

TensorBox tensor_box(Thread& t, uint64_t map, Coordinates at, uint32_t site) {
  TensorBox box{};
  box.at = at;
  if (map % 64) tensor_fault(t, site, "the tensor map's address is not aligned to 64 bytes");
  Slot slot{0, 0};
  for (uint32_t i = 0; i < sizeof box.map; i += 8) resolve(t, slot, map + i, 8, site, access_read, true);
  memcpy(&box.map, reinterpret_cast<const void*>(map), sizeof box.map);
  const TensorMap& m = box.map;
  if (!is_tensor_map(m))
    tensor_fault(t, site, "the 128 bytes at the descriptor's address are no tensor map of cuTensorMapEncode");
  if (m.rank != at.rank)
    tensor_fault(t, site, std::to_string(at.rank) + " coordinates for a tensor map of rank " + std::to_string(m.rank));
  if (m.im2col) tensor_fault(t, site, "a tile copy with a tensor map of cuTensorMapEncodeIm2col");
  if (const int64_t first = int64_t(at.at[0]) * element_bytes[m.type]; first % 16)  // an illegal instruction on an H200
    tensor_fault(t, site,
                 "the innermost coordinate, " + std::to_string(at.at[0]) + ", is at byte " + std::to_string(first) +
                     " of a row: not a multiple of 16 bytes");
  return box;
}

uint32_t box_bytes(const TensorBox& box) {
  uint64_t bytes = element_bytes[box.map.type];
  for (uint32_t k = 0; k < box.map.rank; k++) bytes *= extent(box.map, k);
  return bytes > 0xffffffffu ? 0xffffffffu : uint32_t(bytes);
}

Swizzle box_swizzle(const TensorBox& box) { return Swizzle(box.map.swizzle); }

void gather_box(Thread& t, const TensorBox& box, uint8_t* into, uint32_t site) {
  const TensorMap& m = box.map;
  const uint32_t size = element_bytes[m.type], row = m.box[0] * size;
  const uint64_t fill = fill_pattern(m);
  const Span span = inner_span(box);
  each_row(box, [&](uint32_t offset, uint64_t address, bool inside) {
    uint8_t* to = into + offset;
    if (!inside || span.first || span.last != m.box[0])
      for (uint32_t i = 0; i < row; i += size) memcpy(to + i, &fill, size);
    if (!inside || span.first == span.last) return;
    const uint32_t bytes = (span.last - span.first) * size;
    const uint64_t from = address + uint64_t(int64_t(box.at.at[0]) + span.first) * size;
    memcpy(to + span.first * size, global_bytes(t, from, bytes, site, access_read), bytes);
    convert_elements(m, to + span.first * size, bytes);
  });
}

void scatter_box(Thread& t, const TensorBox& box, const uint8_t* from, Reduction reduction, uint32_t site) {
  const TensorMap& m = box.map;
  const uint32_t size = element_bytes[m.type];
  const Span span = inner_span(box);
  if (span.first == span.last) return;
  const uint32_t bytes = (span.last - span.first) * size;
  each_row(box, [&](uint32_t offset, uint64_t address, bool inside) {
    if (!inside) return;
    const uint64_t to = address + uint64_t(int64_t(box.at.at[0]) + span.first) * size;
    uint8_t* target = global_bytes(t, to, bytes, site, access_write);
    const uint8_t* source = from + offset + span.first * size;
    if (reduction == Reduction::none)
      memcpy(target, source, bytes);
    else if (m.type < 2 || !reduce_bytes(target, source, bytes, reduction, number_of(m)))
      tensor_fault(t, site, "a reduction that the tensor's element type does not have");
  });
}

}  // namespace rt
