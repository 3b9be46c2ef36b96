// One mistake each with Hopper's asynchronous instructions, which is not made where `sound` is not 0.
#include <cstdint>

#define KERNEL extern "C" __global__ void __launch_bounds__(128)

__device__ uint32_t address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void init(uint32_t b, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(count) : "memory");
}
__device__ void arrive(uint32_t b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory"); }
__device__ void expect(uint32_t b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
__device__ void wait(uint32_t b, uint32_t parity) {
  asm volatile(
      "{.reg .pred p;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;\n}" ::"r"(b), "r"(parity)
      : "memory");
}
__device__ void load(void* to, const void* from, uint32_t bytes, uint32_t b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(to)),
               "l"(from), "r"(bytes), "r"(b)
               : "memory");  // mark: load
}
__device__ void store(void* to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(address(from)), "r"(bytes)
               : "memory");  // mark: store
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// 64 x 16 by 8 x 16 in fp16, without swizzle.
__device__ void product(float (&d)[4], const uint32_t* s) {
  const auto descriptor = [](const uint32_t* at) {
    return uint64_t(address(at) >> 4 & 0x3fff) | uint64_t(128 >> 4) << 16 | uint64_t(256 >> 4) << 32;
  };
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "l"(descriptor(s)), "l"(descriptor(s + 512)));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

KERNEL load_not_waited_for(const int* in, int* out, int sound) {
  __shared__ __align__(16) int s[128];
  __shared__ uint64_t barrier;
  const uint32_t b = address(&barrier);
  if (threadIdx.x == 0) init(b, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    expect(b, 512);
    load(s, in, 512, b);  // mark: load_not_waited_for copy
  }
  if (sound || threadIdx.x >= 64) wait(b, 0);
  out[threadIdx.x] = s[threadIdx.x];  // mark: load_not_waited_for read
  if (!sound && threadIdx.x < 64) wait(b, 0);
}
// A ring of two stages: the producer must wait until the consumers have read a stage.
KERNEL stage_filled_too_early(const int* in, int* out, int sound) {
  __shared__ __align__(16) int s[2][64];
  __shared__ uint64_t full[2], empty[2];
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; i++) init(address(&full[i]), 1), init(address(&empty[i]), 64);
  __syncthreads();
  if (threadIdx.x == 127) {
    for (int i = 0; i < 6; i++) {
      if (sound) wait(address(&empty[i % 2]), i / 2 % 2 ^ 1);
      else if (i >= 2) wait(address(&full[i % 2]), i / 2 % 2 ^ 1);
      expect(address(&full[i % 2]), 256);
      load(s[i % 2], in + 64 * (i % 2), 256, address(&full[i % 2]));  // mark: stage_filled_too_early copy
    }
  } else if (threadIdx.x < 64) {
    int sum = 0;
    for (int i = 0; i < 6; i++) {
      wait(address(&full[i % 2]), i / 2 % 2);
      sum += s[i % 2][63 - threadIdx.x];  // mark: stage_filled_too_early read
      arrive(address(&empty[i % 2]));
    }
    out[threadIdx.x] = sum;
  }
}
KERNEL stored_source_overwritten(const int* in, int* out, int sound) {
  __shared__ __align__(16) int s[128];
  s[threadIdx.x] = in[threadIdx.x];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    store(out, s, 512);  // mark: stored_source_overwritten copy
    if (sound) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
  __syncthreads();
  s[threadIdx.x] = 1;  // mark: stored_source_overwritten write
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
KERNEL stored_before_the_barrier(const int* in, int* out, int sound) {
  __shared__ __align__(16) int s[128];
  s[threadIdx.x] = in[threadIdx.x];  // mark: stored_before_the_barrier write
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  if (sound) __syncthreads();
  if (threadIdx.x == 127) {
    store(out, s, 512);  // mark: stored_before_the_barrier copy
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
KERNEL stored_without_fence(const int* in, int* out, int sound) {
  __shared__ __align__(16) int s[128];
  s[threadIdx.x] = in[threadIdx.x];  // mark: stored_without_fence write
  if (sound || threadIdx.x != 70) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 127) {
    store(out, s, 512);  // mark: stored_without_fence copy
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
// The fence of the one thread that issues the copy, behind the barrier, will do.
KERNEL stored_with_one_fence(const int* in, int* out, int sound) {
  __shared__ __align__(16) int s[128];
  s[threadIdx.x] = in[threadIdx.x];  // mark: stored_with_one_fence write
  __syncthreads();
  if (threadIdx.x == 127) {
    if (sound) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    store(out, s, 512);  // mark: stored_with_one_fence copy
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
KERNEL used_before_init_is_seen(const int* in, int* out, int sound) {
  __shared__ uint64_t barrier;
  const uint32_t b = address(&barrier);
  if (threadIdx.x == 0) init(b, 128);  // mark: used_before_init_is_seen init
  if (sound) __syncthreads();
  arrive(b);  // mark: used_before_init_is_seen arrive
  wait(b, 0);
  out[threadIdx.x] = in[threadIdx.x];
}
KERNEL never_initialised(const int* in, int* out, int sound) {
  __shared__ uint64_t barrier;
  const uint32_t b = address(&barrier);
  if (sound && threadIdx.x == 0) init(b, 128);
  __syncthreads();
  arrive(b);  // mark: never_initialised arrive
  out[threadIdx.x] = in[threadIdx.x];
}
KERNEL operands_not_fenced(const int* in, int* out, int sound) {
  __shared__ __align__(128) uint32_t s[640];
  for (int i = threadIdx.x; i < 640; i += 128) s[i] = 0;  // mark: operands_not_fenced write
  if (sound) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float d[4] = {};
  product(d, s);  // mark: operands_not_fenced product
  asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
  out[threadIdx.x] = int(d[0] + d[1] + d[2] + d[3]) + in[threadIdx.x];
}
KERNEL operands_overwritten(const int* in, int* out, int sound) {
  __shared__ __align__(128) uint32_t s[640];
  for (int i = threadIdx.x; i < 640; i += 128) s[i] = 0;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float d[4] = {};
  product(d, s);  // mark: operands_overwritten product
  if (sound) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  __syncthreads();
  s[threadIdx.x] = in[threadIdx.x] | 1;  // mark: operands_overwritten write
  asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
  out[threadIdx.x] = int(d[0] + d[1] + d[2] + d[3]);
}
KERNEL accumulators_read_early(const int* in, int* out, int sound) {
  __shared__ __align__(128) uint32_t s[640];
  for (int i = threadIdx.x; i < 640; i += 128) s[i] = 0;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float d[4] = {};
  product(d, s);
  if (sound) asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
  const float sum = d[0] + d[1] + d[2] + d[3];  // mark: accumulators_read_early read
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  out[threadIdx.x] = int(sum) + in[threadIdx.x];
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) neighbour_read_early(const int* in, int* out, int sound) {
  __shared__ int s[128];
  const auto meet = [] {
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  };
  meet();
  s[threadIdx.x] = in[threadIdx.x];  // mark: neighbour_read_early write
  if (sound) meet();
  uint32_t rank, far;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far) : "r"(address(s + threadIdx.x)), "r"(rank ^ 1));
  int value;
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(value) : "r"(far) : "memory");  // mark: neighbour_read_early read
  if (rank == 0) out[threadIdx.x] = value;
  meet();
}
