// cuda::barrier (mbarrier), cuda::atomic, semaphores, and memory of a size that only the thread knows.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/semaphore>

using Barrier = cuda::barrier<cuda::thread_scope_block>;

extern "C" __global__ void phases(int* out, int rounds) {
  __shared__ Barrier barrier;
  __shared__ int values[128];
  const int i = threadIdx.x, n = blockDim.x;
  if (i == 0) init(&barrier, n);
  __syncthreads();
  values[i] = i;
  for (int r = 0; r < rounds; r++) {
    barrier.arrive_and_wait();
    const int next = values[(i + 1) % n];
    auto token = barrier.arrive();
    barrier.wait(std::move(token));
    values[i] = next;
  }
  out[i] = values[i];
}
// Half of the threads drop out after the first phase.
extern "C" __global__ void dropping(int* out) {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  if (threadIdx.x % 2) {
    barrier.arrive_and_drop();
    return;
  }
  barrier.arrive_and_wait();
  out[threadIdx.x] = 1;
  barrier.arrive_and_wait();
  const int next = out[(threadIdx.x + 2) % blockDim.x];
  barrier.arrive_and_wait();
  out[threadIdx.x] += next;
}
extern "C" __global__ void bytes(int* out) {
  __shared__ unsigned long long b;
  const unsigned at = __cvta_generic_to_shared(&b);
  unsigned long long state;
  int before, middle, after;
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], 96;" : "=l"(state) : "r"(at) : "memory");
  asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.s32 %0, 1, 0, p;}" : "=r"(before) : "r"(at), "l"(state) : "memory");
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 32;" ::"r"(at) : "memory");
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.s32 %0, 1, 0, p;}" : "=r"(middle) : "r"(at) : "memory");
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 64;" ::"r"(at) : "memory");
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.s32 %0, 1, 0, p;}" : "=r"(after) : "r"(at) : "memory");
  out[0] = before, out[1] = middle, out[2] = after;
}
extern "C" __global__ void tickets(cuda::atomic<int, cuda::thread_scope_device>* a, int* out) {
  const int ticket = a->fetch_add(1, cuda::memory_order_relaxed);
  a[1].fetch_max(ticket);
  while (a[2].load(cuda::memory_order_acquire) != ticket) __nanosleep(10);
  out[ticket] = ticket ? out[ticket - 1] + 2 : 1;
  a[2].store(ticket + 1, cuda::memory_order_release);
}
extern "C" __global__ void reversed(int* v, int n) {
  int* copy = (int*)alloca(n * sizeof(int));
  for (int i = 0; i < n; i++) copy[i] = v[threadIdx.x * n + i];
  for (int i = 0; i < n; i++) v[threadIdx.x * n + i] = copy[n - 1 - i];
}
#include <cuda_pipeline.h>

// Two-stage copies from global to shared memory; the last piece is padded with zeros.
extern "C" __global__ void staged(const float4* in, float4* out, int pieces, int valid) {
  __shared__ float4 stage[2][64];
  const int i = threadIdx.x;
  auto issue = [&](int p) {
    const int left = valid - (p * 64 + i) * 4;
    const int missing = left >= 4 ? 0 : left <= 0 ? 16 : 16 - left * 4;
    __pipeline_memcpy_async(&stage[p % 2][i], in + p * 64 + i, 16, missing);
    __pipeline_commit();
  };
  issue(0);
  for (int p = 0; p < pieces; p++) {
    if (p + 1 < pieces) issue(p + 1);
    if (p + 1 < pieces) __pipeline_wait_prior(1);
    else __pipeline_wait_prior(0);
    __syncthreads();
    out[p * 64 + i] = stage[p % 2][63 - i];
    __syncthreads();
  }
}
extern "C" __global__ void forgotten_wait(const float4* in, float4* out) {
  __shared__ float4 stage[32];
  __pipeline_memcpy_async(&stage[threadIdx.x], in + threadIdx.x, 16);
  __pipeline_commit();
  __syncthreads();
  out[threadIdx.x] = stage[threadIdx.x];
}
extern "C" __global__ void copies_on_a_barrier(const int* in, int* out) {
  __shared__ int stage[64];
  __shared__ unsigned long long b;
  const unsigned at = __cvta_generic_to_shared(&b), to = __cvta_generic_to_shared(&stage[threadIdx.x]);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + threadIdx.x) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
  int done = 0;
  while (!done)
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.s32 %0, 1, 0, p;}" : "=r"(done) : "r"(at) : "memory");
  out[threadIdx.x] = stage[63 - threadIdx.x];
}
