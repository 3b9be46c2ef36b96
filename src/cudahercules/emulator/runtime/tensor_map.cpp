// Tensor maps that kernels change: tensormap.replace, and the copy from shared to global memory.
#include <cstring>
#include <string>

#include "cluster.hpp"
#include "mma.hpp"
#include "state.hpp"
#include "tma.hpp"

namespace rt {

namespace {

[[noreturn]] void map_fault(Thread& t, uint32_t site, const std::string& what) {
  fault(t, site, "bulk_copy", "\"detail\":" + quoted("tensor map: " + what));
}

// 128 checked bytes at an address of global memory (or a generic one), or of the shared window.
uint8_t* map_at(Thread& t, uint64_t address, bool shared, uint32_t site, uint32_t access) {
  if (address % 64) map_fault(t, site, "its address is not aligned to 64 bytes");
  if (shared) return cluster_bytes(t, address, sizeof(TensorMap), site, access);
  Slot slot{0, 0};
  for (uint32_t i = 0; i < sizeof(TensorMap); i += 8) resolve(t, slot, address + i, 8, site, access, true);
  watch::access(t, reinterpret_cast<uint8_t*>(address), sizeof(TensorMap), site, access);
  return reinterpret_cast<uint8_t*>(address);
}

// PTX counts element types in another order than cuTensorMapEncode does.
constexpr uint8_t type_of[] = {0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12};

const char* replace(TensorMap& m, MapField field, uint32_t k, uint64_t value) {
  switch (field) {
    case MapField::global_address:
      if (value % 16) return "a global address that is not aligned to 16 bytes";
      m.address = value;
      return nullptr;
    case MapField::rank:  // one less than the rank
      if (value > 4) return "a rank above 5";
      m.rank = uint8_t(value + 1);
      return nullptr;
    case MapField::box_dim:
      if (k > 4 || !value || value > 256) return "a box dimension outside 1 to 256";
      m.box[k] = uint16_t(value);
      return nullptr;
    case MapField::global_dim:
      if (k > 4) return "a dimension above the fifth";
      m.last[k] = uint32_t(value - 1);
      return nullptr;
    case MapField::global_stride:
      if (k > 3 || value % 16 || value >> 40) return "a stride that is no multiple of 16 or not below 2^40";
      m.stride[k] = value;
      return nullptr;
    case MapField::element_stride:
      if (k > 4 || !value || value > 8) return "an element stride outside 1 to 8";
      m.step[k] = uint8_t(value);
      return nullptr;
    case MapField::elemtype:
      if (value >= sizeof type_of) return "an element type that this emulator does not know";
      m.type = type_of[value];
      return nullptr;
    case MapField::interleave_layout:
      return value ? "an interleaved layout, which this emulator does not know" : nullptr;
    case MapField::swizzle_mode:
      if (value > 3) return "a swizzle that this emulator does not know";
      m.swizzle = uint8_t(value);
      return nullptr;
    case MapField::fill_mode:
      if (value > 1) return "a fill mode other than zeros and NaNs";
      m.fill = uint8_t(value);
      return nullptr;
    case MapField::swizzle_atomicity:
      return value ? "a swizzle atomicity that this emulator does not know" : nullptr;
  }
  return "an unknown field";
}

void copy_for_warp(const Lanes& l) {
  for (uint32_t rest = l.active; rest; rest &= rest - 1) {
    const auto& lane = *static_cast<MapLane*>(l.lane[__builtin_ctz(rest)]);
    memcpy(lane.to, lane.from, sizeof(TensorMap));
  }
}

}  // namespace

void replace_in_map(Thread& t, uint64_t address, bool shared, MapField field, uint32_t ordinal, uint64_t value, uint32_t site) {
  uint8_t* at = map_at(t, address, shared, site, access_write);
  TensorMap map;
  memcpy(&map, at, sizeof map);
  if (!is_tensor_map(map)) map_fault(t, site, "a field is replaced in 128 bytes that are no tensor map of cuTensorMapEncode");
  if (const char* problem = replace(map, field, ordinal, value)) map_fault(t, site, problem);
  map.check = checksum(map);
  memcpy(at, &map, sizeof map);
}

void copy_map(Thread& t, MapLane* lane, uint64_t to, uint64_t from, uint32_t site) {
  lane->to = map_at(t, to, false, site, access_write);
  lane->from = map_at(t, from, true, site, access_read);
  whole_warp(t, copy_for_warp, lane, site);
}

}  // namespace rt
