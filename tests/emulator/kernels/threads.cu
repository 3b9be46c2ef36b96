// Kernels in which threads work together or wait for each other.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>
namespace cg = cooperative_groups;

extern "C" __global__ void tiles(int* out) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int v = tile.shfl_down(threadIdx.x, 2) * 100 + tile.meta_group_rank();
  v += cg::reduce(tile, int(threadIdx.x), cg::plus<int>()) * 10000;
  out[threadIdx.x] = v;
}
extern "C" __global__ void big_tiles(int* out) {
  __shared__ cg::block_tile_memory<256> memory;
  auto block = cg::this_thread_block(memory);
  auto tile = cg::tiled_partition<64>(block);
  out[threadIdx.x] = cg::reduce(tile, int(threadIdx.x), cg::plus<int>());
  tile.sync();
  out[threadIdx.x] += tile.meta_group_rank();
}
extern "C" __global__ void coalesced(int* out, int* counter) {
  if (threadIdx.x % 3 == 0) {
    auto active = cg::coalesced_threads();
    int base = 0;
    if (active.thread_rank() == 0) base = atomicAdd(counter, active.size());
    out[threadIdx.x] = active.shfl(base, 0) + active.thread_rank();
  }
}
extern "C" __global__ void grid_sync(int* out, int rounds) {
  auto grid = cg::this_grid();
  const int i = grid.thread_rank(), n = grid.size();
  out[i] = i;
  for (int r = 0; r < rounds; r++) {
    grid.sync();
    const int next = out[(i + 1) % n];
    grid.sync();
    out[i] = next;
  }
}
extern "C" __global__ void votes(int* out) {
  const int i = threadIdx.x;
  if (i >= 24) return;  // exited lanes leave the masks
  int v = __all_sync(~0u, i < 24) | __any_sync(~0u, i == 7) << 1 | __ballot_sync(~0u, i & 1) << 4;
  out[i] = v;
  out[32 + i] = __match_any_sync(0xffffffu, i / 5);
  int p;
  out[64 + i] = __match_all_sync(0xffffffu, 3, &p) + p;
  out[96 + i] = __reduce_add_sync(0xffffffu, i);
  out[128 + i] = __reduce_max_sync(0xffffffu, -i);
  out[160 + i] = __reduce_xor_sync(0xffffffu, 1u << i);
}
extern "C" __global__ void divergent_shuffles(int* out) {
  const int i = threadIdx.x;
  int v = i;
  if (i < 8) {
    v = __shfl_sync(0x000000ffu, v, 7 - i);
    __syncwarp(0xffu);
    v += __shfl_up_sync(0x000000ffu, v, 1);
  } else {
    v = __shfl_xor_sync(0xffffff00u, v, 4, 16) * 2;
  }
  out[i] = v + __shfl_sync(~0u, v, 0);
}
extern "C" __global__ void barriers(int* out) {
  const int i = threadIdx.x;
  out[i] = __syncthreads_count(i % 3 == 0);
  out[i] += 1000 * __syncthreads_and(i < 100) + 2000 * __syncthreads_or(i == 64);
  if (i < 64) {
    asm volatile("bar.sync 3, 64;" ::: "memory");
  } else {
    asm volatile("bar.arrive 4, 96;" ::: "memory");
  }
  if (i < 32) asm volatile("bar.sync 4, 96;" ::: "memory");
}
// Every thread takes the same lock: the loop must let the holder run.
extern "C" __global__ void spin_lock(int* lock, int* counter) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *(volatile int*)counter = *(volatile int*)counter + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}
// The other layout: lanes that fail spin in an inner loop while the holder waits behind it.
extern "C" __global__ void spin_lock_inner(int* lock, int* counter) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *(volatile int*)counter = *(volatile int*)counter + 1;
  __threadfence();
  atomicExch(lock, 0);
}
extern "C" __global__ void producer_consumer(int* out) {
  __shared__ volatile int slot, full;
  if (threadIdx.x == 0) slot = full = 0;
  __syncthreads();
  for (int k = 0; k < 20; k++) {
    if (threadIdx.x == 0) {
      while (full) {}
      slot = k * k;
      __threadfence_block();
      full = 1;
    } else if (threadIdx.x == 1) {
      while (!full) {}
      __threadfence_block();
      out[k] = slot;
      full = 0;
    }
  }
}
// Block b waits for block b + 1: only the last one can begin by itself.
extern "C" __global__ void waits_for_later(volatile int* flags, int* out) {
  const int b = blockIdx.x;
  if (threadIdx.x == 0) {
    if (b + 1 < gridDim.x)
      while (flags[b + 1] == 0) {}
    __threadfence();
    out[b] = b + 1 < gridDim.x ? ((volatile int*)out)[b + 1] + 1 : 1;
    __threadfence();
    flags[b] = 1;
  }
}
extern "C" __global__ void sleepers(volatile int* flag, int* out) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < 10; i++) __nanosleep(100);
    *flag = 1;
  } else {
    while (*flag == 0) __nanosleep(20);
    out[threadIdx.x] = clock64() > 0;
  }
}
extern "C" __global__ void prints(int n, double d, const char* unused) {
  if (threadIdx.x == 0) printf("n=%d d=%.3f %s %c %5u|%-4x|%lld%%\n", n, d, "text", 'q', 7u, 255, -5000000000ll);
  printf("t%d\n", threadIdx.x);
}
extern "C" __global__ void atomics(unsigned* u, float* f, double* d, unsigned long long* l) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&u[0], 1u);
  atomicMax(&u[1], unsigned(i));
  atomicMin((int*)&u[2], -i);
  atomicInc(&u[3], 9);
  atomicDec(&u[4], 9);
  atomicOr(&u[5], 1u << (i & 31));
  atomicXor(&u[6], unsigned(i));
  atomicAnd(&u[7], ~(1u << (i & 15)));
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  atomicAdd(l, 1ull << 33);
  atomicMax(l + 1, (unsigned long long)i << 32);
  __shared__ float s;
  __shared__ double sd;
  __shared__ int si;
  if (threadIdx.x == 0) s = 0, sd = 0, si = 0;
  __syncthreads();
  atomicAdd(&s, 1.0f);
  atomicAdd(&sd, 2.0);
  int old = atomicSub(&si, 3);
  __syncthreads();
  if (threadIdx.x == 0) {
    f[1 + blockIdx.x] = s + float(sd);
    u[8 + blockIdx.x] = si;
  }
  if (old > 0) u[0] = 0;
}
