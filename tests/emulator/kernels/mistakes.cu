// One mistake each, which is not made where `sound` is not 0. Marks name the lines that a report must name.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;

#define KERNEL extern "C" __global__ void

KERNEL barrier_missing(const int* in, int* out, int sound) {
  __shared__ int s[256];
  s[threadIdx.x] = in[threadIdx.x];  // mark: barrier_missing write
  if (sound) __syncthreads();
  out[threadIdx.x] = s[(threadIdx.x + 33) % 256];  // mark: barrier_missing read
}
KERNEL second_barrier_missing(const int* in, int* out, int sound) {
  __shared__ int s[256];
  int sum = 0;
  for (int i = 0; i < 4; i++) {
    s[threadIdx.x] = in[threadIdx.x] + i;  // mark: second_barrier_missing write
    __syncthreads();
    sum += s[threadIdx.x ^ 64];  // mark: second_barrier_missing read
    if (sound) __syncthreads();
  }
  out[threadIdx.x] = sum;
}
KERNEL warp_barrier_missing(const int* in, int* out, int sound) {
  __shared__ int s[256];
  s[threadIdx.x] = in[threadIdx.x];  // mark: warp_barrier_missing write
  if (sound) __syncwarp();
  out[threadIdx.x] = s[threadIdx.x ^ 1];  // mark: warp_barrier_missing read
}
KERNEL shuffle_is_no_barrier(const int* in, int* out, int sound) {
  __shared__ int s[256];
  s[threadIdx.x] = in[threadIdx.x];  // mark: shuffle_is_no_barrier write
  const int other = __shfl_xor_sync(~0u, in[threadIdx.x], 2);
  if (sound) __syncwarp();
  out[threadIdx.x] = s[threadIdx.x ^ 1] + other;  // mark: shuffle_is_no_barrier read
}
KERNEL two_writers(const int* in, int* out, int sound) {
  __shared__ int s[256];
  s[sound ? threadIdx.x : threadIdx.x % 128] = in[threadIdx.x];  // mark: two_writers write
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x % 128];
}
KERNEL neighbouring_bytes(const int* in, int* out, int sound) {
  __shared__ unsigned char s[256];
  s[sound ? threadIdx.x : threadIdx.x / 2 * 2] = (unsigned char)in[threadIdx.x];  // mark: neighbouring_bytes write
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x / 2 * 2];
}
KERNEL wrong_named_barrier(const int* in, int* out, int sound) {
  __shared__ int s[64];
  if (threadIdx.x < 64) {
    s[threadIdx.x] = in[threadIdx.x];  // mark: wrong_named_barrier write
    asm volatile("bar.arrive 1, 128;" ::: "memory");
    asm volatile("bar.sync 2, 128;" ::: "memory");
  } else {
    if (sound) asm volatile("bar.sync 1, 128;" ::: "memory");
    else asm volatile("bar.arrive 1, 128;" ::: "memory");
    out[threadIdx.x] = s[threadIdx.x - 64];  // mark: wrong_named_barrier read
    asm volatile("bar.arrive 2, 128;" ::: "memory");
  }
}
KERNEL histogram_barrier_missing(const int* in, int* out, int sound) {
  __shared__ int bins[32];
  if (threadIdx.x < 32) bins[threadIdx.x] = 0;  // mark: histogram_barrier_missing write
  if (sound) __syncthreads();
  atomicAdd(&bins[in[threadIdx.x] % 32], 1);  // mark: histogram_barrier_missing atomic
  __syncthreads();
  if (threadIdx.x < 32) out[threadIdx.x] = bins[threadIdx.x];
}
// More addresses than have a clock of their own.
KERNEL many_atomics(const int* in, int* out, int sound) {
  extern __shared__ int bins[];
  for (int i = threadIdx.x; i < 8192; i += 256) bins[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < 3 * 8192; i += 256) atomicAdd(&bins[(i * 37 + in[threadIdx.x]) % 8192], 1);
  __syncthreads();
  out[threadIdx.x] = bins[threadIdx.x * 32] + bins[threadIdx.x + sound];
}
KERNEL tile_barrier_missing(const int* in, int* out, int sound) {
  __shared__ int s[256];
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  s[threadIdx.x] = in[threadIdx.x];  // mark: tile_barrier_missing write
  if (sound) tile.sync();
  out[threadIdx.x] = s[threadIdx.x ^ 7];  // mark: tile_barrier_missing read
}
__device__ __forceinline__ void put(int* s, int i, int value) {
  s[i] = value;  // mark: inlined put
}
KERNEL inlined(const int* in, int* out, int sound) {
  __shared__ int s[256];
  put(s, threadIdx.x, in[threadIdx.x]);  // mark: inlined call
  if (sound) __syncthreads();
  out[threadIdx.x] = s[255 - threadIdx.x];  // mark: inlined read
}

KERNEL undefined_shared(const int* in, int* out, int sound) {
  __shared__ int s[256];
  if (sound || threadIdx.x != 77) s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[255 - threadIdx.x];  // mark: undefined_shared read
}
// A maximum passes over the NaN that undefined memory holds at first.
KERNEL undefined_maximum(const int* in, int* out, int sound) {
  __shared__ float s[256];
  if (sound || threadIdx.x != 77) s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  float largest = 0;
  for (int i = 0; i < 256; i++) largest = fmaxf(largest, s[i]);  // mark: undefined_maximum read
  out[threadIdx.x] = largest;
}
// Undefined, but nothing depends on it.
KERNEL undefined_and_unused(const int* in, int* out, int sound) {
  __shared__ int s[256];
  if (threadIdx.x < 200) s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  const int value = ((volatile int*)s)[threadIdx.x];
  out[threadIdx.x] = threadIdx.x < 200 ? value : sound;
}
KERNEL undefined_scratch(const int* in, int* out, int sound, int* scratch) {
  if (sound) scratch[threadIdx.x] = 0;
  scratch[threadIdx.x] += in[threadIdx.x];  // mark: undefined_scratch read
  out[threadIdx.x] = scratch[threadIdx.x];
}
KERNEL unwritten(const int* in, int* out, int sound) {
  if (sound || threadIdx.x < 250) out[threadIdx.x] = in[threadIdx.x];
}

KERNEL copy_not_waited_for(const int* in, int* out, int sound) {
  __shared__ int4 s[64];
  if (threadIdx.x < 64) {
    __pipeline_memcpy_async(&s[threadIdx.x], in + 4 * threadIdx.x, 16);  // mark: copy_not_waited_for copy
    __pipeline_commit();
    if (sound) __pipeline_wait_prior(0);
    const int4 v = s[threadIdx.x];  // mark: copy_not_waited_for read
    for (int i = 0; i < 4; i++) out[4 * threadIdx.x + i] = (&v.x)[i];
  }
}
KERNEL too_few_copies_waited_for(const int* in, int* out, int sound) {
  __shared__ int4 s[2][64];
  if (threadIdx.x < 64) {
    __pipeline_memcpy_async(&s[0][threadIdx.x], in + 4 * threadIdx.x, 16);
    __pipeline_commit();
    __pipeline_memcpy_async(&s[1][threadIdx.x], in + 4 * threadIdx.x, 16);  // mark: too_few_copies_waited_for copy
    __pipeline_commit();
    if (sound) __pipeline_wait_prior(0);
    else __pipeline_wait_prior(1);
    const int4 v = s[1][threadIdx.x];  // mark: too_few_copies_waited_for read
    for (int i = 0; i < 4; i++) out[4 * threadIdx.x + i] = (&v.x)[i];
  }
}
KERNEL copy_without_barrier(const int* in, int* out, int sound) {
  __shared__ int s[256];
  __pipeline_memcpy_async(&s[threadIdx.x], in + threadIdx.x, 4);  // mark: copy_without_barrier copy
  __pipeline_commit();
  __pipeline_wait_prior(0);
  if (sound) __syncthreads();
  out[threadIdx.x] = s[255 - threadIdx.x];  // mark: copy_without_barrier read
}
KERNEL copy_over_readers(const int* in, int* out, int sound) {
  __shared__ int s[256];
  s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[255 - threadIdx.x];  // mark: copy_over_readers read
  if (sound) __syncthreads();
  __pipeline_memcpy_async(&s[threadIdx.x], in + threadIdx.x, 4);  // mark: copy_over_readers copy
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] += s[threadIdx.x];
}

KERNEL past_the_end(const int* in, int* out, int sound) {
  out[threadIdx.x + (sound ? 0 : 1)] = in[threadIdx.x];  // mark: past_the_end write
}
KERNEL past_shared(const int* in, int* out, int sound) {
  __shared__ int s[256];
  s[threadIdx.x + (sound ? 0 : 3)] = in[threadIdx.x];  // mark: past_shared write
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}
KERNEL misaligned(const int* in, int* out, int sound) {
  const int2 v = *(const int2*)(in + (sound ? 0 : 1));  // mark: misaligned read
  out[threadIdx.x] = v.x + v.y;
}
KERNEL half_of_the_barrier(const int* in, int* out, int sound) {
  if (sound || threadIdx.x < 128)
    __syncthreads();  // mark: half_of_the_barrier first
  out[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x >= 64)
    asm volatile("bar.sync 1, 256;");  // mark: half_of_the_barrier second
  else if (sound)
    asm volatile("bar.sync 1, 256;");
}
KERNEL divergent(const int* in, int* out, int sound) {
  if (!sound && threadIdx.x & 1) {
    out[threadIdx.x] = in[threadIdx.x];
    __syncthreads();  // mark: divergent first
  } else {
    out[threadIdx.x] = 2 * in[threadIdx.x];
    __syncthreads();  // mark: divergent second
  }
}
KERNEL masks(const int* in, int* out, int sound) {
  const unsigned mask = sound ? ~0u : 0xffffu;
  out[threadIdx.x] = __shfl_xor_sync(mask, in[threadIdx.x], 1);  // mark: masks shuffle
}
KERNEL endless(const int* in, int* out, int sound) {
  int x = in[threadIdx.x] | 1;
  for (int i = 0; i < 1 << 20; i++) x = x * 3 + i;
  while (!sound) x += *(volatile const int*)in;  // mark: endless loop
  out[threadIdx.x] = x;
}
