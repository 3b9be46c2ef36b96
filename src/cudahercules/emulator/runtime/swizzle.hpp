// Where the hardware really puts the bytes of a swizzled tile in shared memory: one function for the
// bulk tensor copies that write tiles and the wgmma descriptors that read them.
#pragma once
#include <stdint.h>

namespace rt {

// The span over which the 16-byte units of a row are permuted. The number is the count of address bits taken.
enum class Swizzle : uint32_t { none = 0, bytes32 = 1, bytes64 = 2, bytes128 = 3 };

// Address bits 4.. are XORed with bits 7..: one bit for 32 bytes, two for 64, three for 128. A function of the
// byte address in shared memory, not of the position in a tile; its own inverse.
constexpr uint32_t swizzled(uint32_t address, Swizzle mode) {
  const uint32_t bits = (1u << static_cast<uint32_t>(mode)) - 1;
  return address ^ ((address >> 7 & bits) << 4);
}

}  // namespace rt
