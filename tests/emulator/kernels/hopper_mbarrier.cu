// mbarrier in all its forms, linear bulk copies, and the ways to get them wrong.
#include <cuda/barrier>
#include <cuda/ptx>
#include <stdint.h>
namespace ptx = cuda::ptx;

static __device__ uint32_t address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
static __device__ void init(uint32_t b, uint32_t count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(count) : "memory"); }
static __device__ uint64_t arrive(uint32_t b, uint32_t count = 1) {
  uint64_t state;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(b), "r"(count) : "memory");
  return state;
}
static __device__ uint32_t pending(uint64_t state) {
  uint32_t n;
  asm("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(state));
  return n;
}
static __device__ bool test(uint32_t b, uint32_t parity) {
  uint32_t done;
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(b), "r"(parity) : "memory");
  return done;
}
static __device__ bool test_state(uint32_t b, uint64_t state) {
  uint32_t done;
  asm volatile("{.reg .pred p; mbarrier.test_wait.acquire.cta.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(b), "l"(state) : "memory");
  return done;
}
static __device__ bool try_state(uint32_t b, uint64_t state) {
  uint32_t done;
  asm volatile("{.reg .pred p; mbarrier.try_wait.shared::cta.b64 p, [%1], %2, 1000; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(b), "l"(state) : "memory");
  return done;
}
static __device__ bool try_parity(uint32_t b, uint32_t parity) {
  uint32_t done;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 p, [%1], %2, 1000; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(b), "r"(parity) : "memory");
  return done;
}
static __device__ void wait(uint32_t b, uint32_t parity) {
  while (!try_parity(b, parity)) {}
}

// What every operation does to the pending count and to the phase, seen by one thread.
extern "C" __global__ void states(uint32_t* out) {
  __shared__ uint64_t barrier;
  uint32_t b = address(&barrier);
  int i = 0;
  init(b, 5);
  uint64_t first = arrive(b);
  out[i++] = pending(first);                                    // 5
  out[i++] = test_state(b, first) | test(b, 0) << 1 | test(b, 1) << 2;  // 4: the phase before is over
  uint64_t s;
  asm volatile("mbarrier.arrive.noComplete.shared::cta.b64 %0, [%1], 2;" : "=l"(s) : "r"(b) : "memory");
  out[i++] = pending(s);                                        // 4
  asm volatile("mbarrier.arrive_drop.shared::cta.b64 %0, [%1];" : "=l"(s) : "r"(b) : "memory");
  out[i++] = pending(s);                                        // 2
  out[i++] = test(b, 0);                                        // 0
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1];" : "=l"(s) : "r"(b) : "memory");
  out[i++] = pending(s);                                        // 1
  out[i++] = test_state(b, first) | test(b, 0) << 1 | test(b, 1) << 2 | try_state(b, s) << 3;  // 11
  s = arrive(b, 3);
  out[i++] = pending(s);                                        // 4: one has dropped out
  asm volatile("mbarrier.arrive_drop.expect_tx.shared::cta.b64 %0, [%1], 64;" : "=l"(s) : "r"(b) : "memory");
  out[i++] = pending(s);                                        // 1
  out[i++] = test(b, 1);                                        // 0: 64 bytes are missing
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 48;" ::"r"(b) : "memory");
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 32;" ::"r"(b) : "memory");
  asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], 32;" ::"r"(b) : "memory");
  out[i++] = test(b, 1);                                        // 0
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 16;" ::"r"(b) : "memory");
  out[i++] = test(b, 1);                                        // 1
  out[i++] = pending(arrive(b));                                // 3: two have dropped out
  // Bytes may come before they are announced.
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 1048575;" ::"r"(b) : "memory");
  asm volatile("mbarrier.arrive_drop.noComplete.release.cta.shared::cta.b64 %0, [%1], 1;" : "=l"(s) : "r"(b) : "memory");
  out[i++] = pending(s);                                        // 2
  asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cta.b64 %0, [%1], 1048575;" : "=l"(s) : "r"(b) : "memory");
  out[i++] = test(b, 0) | pending(s) << 1;                      // 3
  // A generic address, and a new life.
  uint64_t generic = (uint64_t)&barrier;
  asm volatile("mbarrier.inval.b64 [%0];" ::"l"(generic) : "memory");
  asm volatile("mbarrier.init.b64 [%0], 1048575;" ::"l"(generic) : "memory");
  asm volatile("mbarrier.arrive.b64 %0, [%1], 1048574;" : "=l"(s) : "l"(generic) : "memory");
  out[i++] = pending(s);                                        // 1048575
  out[i++] = pending(arrive(b)) | test(b, 0) << 8;              // 257
}
// Threads pass a token round, each waiting for its own barrier; `how` chooses the wait.
extern "C" __global__ void round_trip(int* out, int rounds, int how) {
  __shared__ uint64_t barriers[64];
  __shared__ int token;
  int i = threadIdx.x, n = blockDim.x;
  uint32_t mine = address(&barriers[i]), next = address(&barriers[(i + 1) % n]);
  init(mine, 1);
  token = 0;
  __syncthreads();
  if (i == 0) arrive(mine);
  for (int r = 0; r < rounds; r++) {
    if (how == 0)
      while (!test(mine, r & 1)) {}
    else if (how == 1)
      wait(mine, r & 1);
    else
      while (!try_parity(mine, r & 1)) __nanosleep(20);
    token = token * 3 % 1000003 + i;
    arrive(next);
  }
  __syncthreads();
  if (i == 0) out[0] = token;
}

// --- linear copies ------------------------------------------------------------------------------------

extern "C" __global__ void there_and_back(const int* in, int* out, int* sums, int* lowest) {
  __shared__ __align__(16) int values[256];
  __shared__ uint64_t barrier;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&barrier, 1);
    ptx::fence_proxy_async(ptx::space_shared);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier, sizeof values);
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(in), "r"(1024) : "memory");
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, values, in + blockIdx.x * 256, 512, &barrier);
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, values + 128, in + blockIdx.x * 256 + 128, 512, &barrier);
  }
  __syncthreads();
  while (!ptx::mbarrier_try_wait_parity(&barrier, 0)) {}
  for (int i = threadIdx.x; i < 256; i += 32) values[i] += 1;
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + blockIdx.x * 256, values, 1024);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, sums, values, 1024);
    ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_min, lowest, values, 512);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
}
extern "C" __global__ void reduce_halves(const __half* in, __half* sum, const float* floats, float* total, uint64_t* bits) {
  __shared__ __align__(16) __half halves[64];
  __shared__ __align__(16) float values[64];
  __shared__ __align__(16) uint64_t words[2];
  for (int i = threadIdx.x; i < 64; i += 32) halves[i] = in[i], values[i] = floats[i];
  if (threadIdx.x < 2) words[threadIdx.x] = 0xf0f0ull << 8 * threadIdx.x;
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%0], [%1], 128;" ::"l"(sum), "r"(address(halves)) : "memory");
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.f32 [%0], [%1], 256, %2;" ::"l"(total), "r"(address(values)), "l"(0x12f0000000000000ull) : "memory");
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.xor.b64 [%0], [%1], 16;" ::"l"(bits), "r"(address(words)) : "memory");
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
  }
}
// Three groups; the wait for all but the last `left` makes exactly the others visible (late).
extern "C" __global__ void groups(const int* in, int* out, int* seen, int left) {
  __shared__ __align__(16) int values[12];
  for (int i = 0; i < 12; i++) values[i] = in[i];
  ptx::fence_proxy_async(ptx::space_shared);
  for (int g = 0; g < 3; g++) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + g * 4, values + g * 4, 16);
    ptx::cp_async_bulk_commit_group();
  }
  if (left == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
  if (left == 1) ptx::cp_async_bulk_wait_group(ptx::n32_t<1>());
  if (left == 2) ptx::cp_async_bulk_wait_group(ptx::n32_t<2>());
  for (int g = 0; g < 3; g++) seen[g] = ((volatile int*)out)[g * 4];
  ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}
// Several warps fill a ring together: each thread copies for itself and lets the copies arrive.
extern "C" __global__ void copies_that_arrive(const int* in, int* out, int counted) {
  __shared__ int stage[2][32];
  __shared__ uint64_t full[2];
  int i = threadIdx.x;
  if (i == 0) init(address(&full[0]), 32), init(address(&full[1]), 32);
  __syncthreads();
  if (i < 32) {
    for (int s = 0; s < 2; s++) {
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address(&stage[s][i])), "l"(in + s * 32 + i) : "memory");
      if (counted) {
        asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(address(&full[s])) : "memory");
        arrive(address(&full[s]));
      } else {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address(&full[s])) : "memory");
      }
    }
    return;
  }
  for (int s = 0; s < 2; s++) {
    wait(address(&full[s]), 0);
    out[s * 32 + i - 32] = stage[s][63 - i];
  }
}
// Reads the stage of another thread after waiting for the wrong barrier.
extern "C" __global__ void waits_for_another(const int* in, int* out) {
  __shared__ __align__(16) int values[8];
  __shared__ uint64_t barriers[2];
  uint32_t a = address(barriers), b = address(barriers + 1);
  init(a, 1), init(b, 1);
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, barriers, 16);
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, barriers + 1, 16);
  ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, values, in, 16, barriers);
  ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, values + 4, in + 4, 16, barriers + 1);
  wait(b, 0);
  out[0] = values[0], out[1] = values[4];  // the first copy need not be there
  wait(a, 0);
  out[2] = values[0];
}
// libcu++'s way: a barrier with transaction count and memcpy_async.
extern "C" __global__ void through_the_library(const int* in, int* out) {
  using barrier = cuda::barrier<cuda::thread_scope_block>;
  __shared__ alignas(16) int values[64];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier bar;
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::device::memcpy_async_tx(values, in, cuda::aligned_size_t<16>(sizeof values), bar);
    token = cuda::device::barrier_arrive_tx(bar, 1, sizeof values);
  } else {
    token = bar.arrive(1);
  }
  bar.wait(std::move(token));
  out[threadIdx.x] = values[63 - threadIdx.x] + values[31 - threadIdx.x];
}

// --- wrong ----------------------------------------------------------------------------------------------

extern "C" __global__ void misuse(int which, const int* in) {
  __shared__ __align__(16) int values[64];
  __shared__ uint64_t barriers[2];
  uint32_t b = address(barriers), v = address(values);
  switch (which) {
    case 0: arrive(b); break;
    case 1: init(b, 0); break;
    case 2: init(b, 1 << 20); break;
    case 3: init(b, 2); arrive(b, 3); break;
    case 4: init(b, 1); asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(b) : "memory"); arrive(b); break;
    case 5: init(b, 1); asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 1048575;\nmbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 1;" ::"r"(b) : "memory"); break;
    case 6: init(b, 2); asm volatile("{.reg .b64 s; mbarrier.arrive.noComplete.shared::cta.b64 s, [%0], 2;}" ::"r"(b) : "memory"); break;
    case 7: init(b, 1); asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(b) : "memory"); arrive(b); break;
    case 8: init(b, 2); asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 32, [%2];" ::"r"(v), "l"(in), "r"(b) : "memory"); init(b, 1); break;
    case 9: init(b, 2); asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 32, [%2];" ::"r"(v), "l"(in), "r"(b) : "memory");
            asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(b) : "memory"); break;
    case 10: arrive(b + 4); break;
    case 11: asm volatile("{.reg .b64 s; mbarrier.arrive.b64 s, [%0];}" ::"l"(in) : "memory"); break;
    case 12: init(b, 1); asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 1048575;\nmbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 1;" ::"r"(b) : "memory"); break;
    case 20: init(b, 1); asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 32, [%2];" ::"r"(v + 8), "l"(in), "r"(b) : "memory"); break;
    case 21: init(b, 1); asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 32, [%2];" ::"r"(v), "l"(in + 1), "r"(b) : "memory"); break;
    case 22: init(b, 1); asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %3, [%2];" ::"r"(v), "l"(in), "r"(b), "r"(which + 18) : "memory"); break;
    case 23: init(b, 1); asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(v), "l"(in), "r"(b) : "memory"); break;
    case 24: init(b, 1); asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(v), "l"(in + 32), "r"(b) : "memory"); break;
    case 25: init(b, 1); asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;" ::"l"(in), "r"(v) : "memory"); break;
  }
}
// Nobody arrives: one group of threads waits on the barrier, the other at bar.sync.
extern "C" __global__ void nobody_arrives(int how) {
  __shared__ uint64_t barriers[2];
  uint32_t b = address(barriers + 1);
  if (threadIdx.x == 0) init(b, 40);
  __syncthreads();
  if (threadIdx.x >= 32) {
    if (threadIdx.x == 40) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 96;" ::"r"(b) : "memory");
    __syncwarp();
    if (how == 0) {
      wait(b, 0);  // try_wait
    } else if (how == 1) {
      while (!test(b, 0)) {}  // test_wait
    } else if (how == 2) {
      while (!try_parity(b, 0)) __nanosleep(100);
    } else {
      ((cuda::barrier<cuda::thread_scope_block>*)(barriers + 1))->wait_parity(false);
    }
  }
  __syncthreads();  // the others
}
