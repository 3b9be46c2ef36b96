// One box of a tensor between global and shared memory; the raw bytes of shared memory come out or go in.
#include <cuda.h>
#include <stdint.h>

struct Place {
  int c[5];
};

static __device__ uint32_t address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

static __device__ void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}\n" ::"r"(barrier), "r"(parity) : "memory");
}
static __device__ void init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\nfence.mbarrier_init.release.cluster;" ::"r"(barrier), "r"(count) : "memory");
}
static __device__ void expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

#define LOAD "cp.async.bulk.tensor."
#define INTO ".shared::cluster.global.mbarrier::complete_tx::bytes "
template <int R>
static __device__ void load(uint32_t to, const CUtensorMap* map, Place p, uint32_t barrier) {
  const int* c = p.c;
  if constexpr (R == 1)
    asm volatile(LOAD "1d" INTO "[%0], [%1, {%2}], [%3];" ::"r"(to), "l"(map), "r"(c[0]), "r"(barrier) : "memory");
  if constexpr (R == 2)
    asm volatile(LOAD "2d" INTO "[%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(c[0]), "r"(c[1]), "r"(barrier) : "memory");
  if constexpr (R == 3)
    asm volatile(LOAD "3d" INTO "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to), "l"(map), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(barrier) : "memory");
  if constexpr (R == 4)
    asm volatile(LOAD "4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to), "l"(map), "r"(c[0]), "r"(c[1]),
                 "r"(c[2]), "r"(c[3]), "r"(barrier), "l"(0x12f0000000000000ull) : "memory");
  if constexpr (R == 5)
    asm volatile(LOAD "5d" INTO "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to), "l"(map), "r"(c[0]), "r"(c[1]),
                 "r"(c[2]), "r"(c[3]), "r"(c[4]), "r"(barrier) : "memory");
}

// `bytes` of shared memory, `shift` bytes behind a multiple of 1024, after the load.
template <int R>
static __device__ void dump(const CUtensorMap* map, Place p, uint32_t bytes, uint32_t announced, uint32_t shift, uint8_t* out) {
  extern __shared__ uint8_t memory[];
  __shared__ uint64_t barrier;
  uint8_t* box = memory + (1024 - address(memory) % 1024) % 1024 + shift;
  for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) box[i] = 0xee;
  if (threadIdx.x == 0) init(address(&barrier), 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
    expect(address(&barrier), announced);
    load<R>(address(box), map, p, address(&barrier));
  }
  wait(address(&barrier), 0);
  for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = box[i];
}
#define DUMP(R) \
  extern "C" __global__ void load_##R(const __grid_constant__ CUtensorMap map, Place p, uint32_t bytes, uint32_t announced, uint32_t shift, uint8_t* out) { \
    dump<R>(&map, p, bytes, announced, shift, out); \
  }
DUMP(1) DUMP(2) DUMP(3) DUMP(4) DUMP(5)

extern "C" __global__ void load_by_pointer(const CUtensorMap* map, Place p, uint32_t bytes, uint8_t* out) {
  dump<2>(map, p, bytes, bytes, 0, out);
}
__constant__ CUtensorMap constant_map;
extern "C" __global__ void load_by_constant(Place p, uint32_t bytes, uint8_t* out) { dump<2>(&constant_map, p, bytes, bytes, 0, out); }

// Raw bytes go to shared memory and from there to the tensor.
template <class Store>
static __device__ void store(const uint8_t* in, uint32_t bytes, Store issue) {
  extern __shared__ uint8_t memory[];
  uint8_t* box = memory + (1024 - address(memory) % 1024) % 1024;
  for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) box[i] = in[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    issue(address(box));
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
extern "C" __global__ void store_1(const __grid_constant__ CUtensorMap map, Place p, const uint8_t* in, uint32_t bytes) {
  store(in, bytes, [&](uint32_t box) {
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%1}], [%2];" ::"l"(&map), "r"(p.c[0]), "r"(box) : "memory");
  });
}
extern "C" __global__ void store_2(const __grid_constant__ CUtensorMap map, Place p, const uint8_t* in, uint32_t bytes) {
  store(in, bytes, [&](uint32_t box) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(p.c[0]), "r"(p.c[1]), "r"(box) : "memory");
  });
}
extern "C" __global__ void store_3(const __grid_constant__ CUtensorMap map, Place p, const uint8_t* in, uint32_t bytes) {
  store(in, bytes, [&](uint32_t box) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map), "r"(p.c[0]), "r"(p.c[1]), "r"(p.c[2]), "r"(box) : "memory");
  });
}
extern "C" __global__ void store_5(const __grid_constant__ CUtensorMap map, Place p, const uint8_t* in, uint32_t bytes) {
  store(in, bytes, [&](uint32_t box) {
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(&map), "r"(p.c[0]), "r"(p.c[1]), "r"(p.c[2]), "r"(p.c[3]), "r"(p.c[4]), "r"(box) : "memory");
  });
}
#define REDUCE(OP) \
  extern "C" __global__ void reduce_##OP(const __grid_constant__ CUtensorMap map, Place p, const uint8_t* in, uint32_t bytes) { \
    store(in, bytes, [&](uint32_t box) { \
      asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta." #OP ".tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(p.c[0]), "r"(p.c[1]), "r"(box) : "memory"); \
    }); \
  }
REDUCE(add) REDUCE(min) REDUCE(max) REDUCE(inc) REDUCE(dec) REDUCE(and) REDUCE(or) REDUCE(xor)

extern "C" __global__ void prefetch_box(const __grid_constant__ CUtensorMap map, Place p, int* out) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(&map), "r"(p.c[0]), "r"(p.c[1]) : "memory");
  out[0] = 1;
}

// --- wrong ------------------------------------------------------------------------------------------

extern "C" __global__ void misaligned_box(const __grid_constant__ CUtensorMap map, uint8_t* out) {
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t barrier;
  init(address(&barrier), 1);
  expect(address(&barrier), 1024);
  load<2>(address(memory) + 64, &map, Place{{0, 0}}, address(&barrier));  // 64, not 128
  wait(address(&barrier), 0);
  out[0] = memory[64];
}
extern "C" __global__ void wrong_rank(const __grid_constant__ CUtensorMap map, uint8_t* out) {
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t barrier;
  init(address(&barrier), 1);
  expect(address(&barrier), 1024);
  load<3>(address(memory), &map, Place{{0, 0, 0}}, address(&barrier));  // a map of rank 2
  wait(address(&barrier), 0);
  out[0] = memory[0];
}
extern "C" __global__ void changed_map(CUtensorMap* map, uint8_t* out) {
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t barrier;
  init(address(&barrier), 1);
  map->opaque[3] ^= 1;
  expect(address(&barrier), 1024);
  load<2>(address(memory), map, Place{{0, 0}}, address(&barrier));  // no longer a map
  wait(address(&barrier), 0);
  out[0] = memory[0];
}
extern "C" __global__ void no_wait_for_load(const __grid_constant__ CUtensorMap map, float* out) {
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t barrier;
  if (threadIdx.x == 0) {
    init(address(&barrier), 1);
    expect(address(&barrier), 1024);
    load<2>(address(memory), &map, Place{{0, 0}}, address(&barrier));
  }
  __syncthreads();
  out[threadIdx.x] = ((float*)memory)[threadIdx.x];  // too early
  __syncthreads();
  wait(address(&barrier), 0);
}
extern "C" __global__ void leaves_before_load(const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t barrier;
  init(address(&barrier), 1);
  expect(address(&barrier), 1024);
  load<2>(address(memory), &map, Place{{0, 0}}, address(&barrier));  // nobody waits
}
extern "C" __global__ void leaves_before_store(const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) uint8_t memory[];
  for (int i = 0; i < 256; i++) ((float*)memory)[i] = 5000 + i;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(0), "r"(0), "r"(address(memory)) : "memory");  // nobody waits
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// The source is written again before the store has read it, unless it waits.
extern "C" __global__ void reuses_source(const __grid_constant__ CUtensorMap map, int waits) {
  extern __shared__ __align__(1024) uint8_t memory[];
  float* values = (float*)memory;
  for (int round = 0; round < 2; round++) {
    if (waits) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    for (int i = 0; i < 256; i++) values[i] = round * 1000 + i;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(0), "r"(round * 8), "r"(address(memory)) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// Announces half of the bytes: the phase ends before the box is there.
extern "C" __global__ void announces_too_little(const __grid_constant__ CUtensorMap map, float* out) {
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t barrier;
  init(address(&barrier), 1);
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 512;" ::"r"(address(&barrier)) : "memory");
  load<2>(address(memory), &map, Place{{0, 0}}, address(&barrier));
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(&barrier)) : "memory");
  wait(address(&barrier), 0);  // 512 of 1024 announced
  out[0] = ((float*)memory)[0];
}
extern "C" __global__ void announces_nothing(const __grid_constant__ CUtensorMap map, float* out) {
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t barrier;
  init(address(&barrier), 1);
  load<2>(address(memory), &map, Place{{0, 0}}, address(&barrier));  // 1024 bytes that nobody expects
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(&barrier)) : "memory");
  wait(address(&barrier), 0);
  out[0] = ((float*)memory)[0];
}
// A ring of two stages: loads run ahead of the multiplication by two.
extern "C" __global__ void ring(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out, int tiles, int waits) {
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t full[2], empty[2];
  float* stage = (float*)memory;  // 2 x 256 floats in, 256 out
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; i++) init(address(&full[i]), 1), init(address(&empty[i]), 32);
  __syncthreads();
  if (threadIdx.x >= 32) {
    if (threadIdx.x == 32)
      for (int i = 0; i < tiles; i++) {
        if (waits) wait(address(&empty[i % 2]), (i / 2 & 1) ^ 1);
        expect(address(&full[i % 2]), 1024);
        load<2>(address(stage + i % 2 * 256), &in, Place{{0, i * 8}}, address(&full[i % 2]));
      }
    return;
  }
  for (int i = 0; i < tiles; i++) {
    wait(address(&full[i % 2]), i / 2 & 1);
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    __syncwarp();
    for (int j = threadIdx.x; j < 256; j += 32) stage[512 + j] = 2 * stage[i % 2 * 256 + j];
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(&empty[i % 2])) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&out), "r"(0), "r"(i * 8), "r"(address(stage + 512)) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
