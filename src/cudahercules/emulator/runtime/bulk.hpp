// Bulk copies: between global and shared memory, linear or by a tensor map, signalled by an mbarrier or
// waited for as a group. Shared operands are window addresses.
#pragma once
#include "device.hpp"

namespace rt {

struct BulkQueue;

enum class Reduction : uint32_t { none, add, min, max, inc, dec, band, bor, bxor };
enum class Number : uint32_t { u32, s32, u64, s64, f16, bf16, f32, f64 };

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

// st.async and red.async: up to 16 bytes of the thread's registers.
void send_async(Thread& t, uint64_t to, const void* data, uint32_t size, uint64_t barrier, Reduction reduction,
                Number number, uint32_t site);

}  // namespace rt
