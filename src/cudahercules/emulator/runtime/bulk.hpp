// Bulk copies: between global and shared memory, linear or by a tensor map, signalled by an mbarrier or
// waited for as a group. Shared operands are window addresses.
#pragma once
#include "device.hpp"

namespace rt {

struct BulkQueue;

enum class Reduction : uint32_t { none, add, min, max, inc, dec, band, bor, bxor };
enum class Number : uint32_t { u32, s32, u64, s64, f16, bf16, f32, f64, f32_ftz };

// Coordinates of a box, innermost first.
struct Coordinates {
  uint32_t rank;
  int32_t at[5];
};
// Which blocks of the cluster get the bytes: all in `blocks` if `given`, else the one that the address names.
struct Multicast {
  bool given;
  uint32_t blocks;
};

void bulk_load(Thread& t, uint64_t to, uint64_t from, uint32_t size, uint64_t barrier, Multicast m, uint32_t site);
void bulk_store(Thread& t, uint64_t to, uint64_t from, uint32_t size, Reduction reduction, Number number, uint32_t site);
// From the own block's shared memory to a block of the cluster.
void bulk_send(Thread& t, uint64_t to, uint64_t from, uint32_t size, uint64_t barrier, Reduction reduction,
               Number number, uint32_t site);
void bulk_tensor_load(Thread& t, uint64_t to, uint64_t map, Coordinates c, uint64_t barrier, Multicast m, uint32_t site);
void bulk_tensor_store(Thread& t, uint64_t map, Coordinates c, uint64_t from, Reduction reduction, uint32_t site);
void bulk_prefetch(Thread& t, uint64_t from, uint32_t size, uint32_t site);
void bulk_tensor_prefetch(Thread& t, uint64_t map, Coordinates c, uint32_t site);
void bulk_commit(Thread& t);
void bulk_wait(Thread& t, uint32_t groups_left, bool only_reads);

// tensormap.replace: one field of the map at a generic (or, if `shared`, window) address gets a new value.
enum class MapField : uint32_t {
  global_address, rank, box_dim, global_dim, global_stride, element_stride,
  elemtype, interleave_layout, swizzle_mode, fill_mode, swizzle_atomicity
};
void replace_in_map(Thread& t, uint64_t address, bool shared, MapField field, uint32_t ordinal, uint64_t value, uint32_t site);
// tensormap.cp_fenceproxy: the whole warp copies a map from shared to global memory.
struct MapLane {
  uint8_t* to;
  const uint8_t* from;
};
void copy_map(Thread& t, MapLane* lane, uint64_t to, uint64_t from, uint32_t site);

// st.async and red.async: up to 16 bytes of the thread's registers.
void send_async(Thread& t, uint64_t to, const void* data, uint32_t size, uint64_t barrier, Reduction reduction,
                Number number, uint32_t site);

}  // namespace rt
