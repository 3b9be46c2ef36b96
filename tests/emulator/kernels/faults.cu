// Kernels that do what hardware punishes, each in one way.
#include <cassert>

extern "C" __global__ void read_past_end(const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i % 4] = in[i];
}
extern "C" __global__ void write_before(float* out) { out[-3] = 1; }
extern "C" __global__ void write_input(float* in) { in[threadIdx.x] = 1; }
extern "C" __global__ void null_pointer(float* out) { out[0] = *(volatile float*)nullptr; }
extern "C" __global__ void misaligned(float* out) { *(float2*)(out + 1) = make_float2(1, 2); }
extern "C" __global__ void shared_past_end(float* out, int i) {
  __shared__ float s[64];
  s[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x + i];
}
extern "C" __global__ void shared_misaligned(float* out, int i) {
  extern __shared__ char c[];
  *(int*)(c + i) = 1;
  out[0] = c[threadIdx.x];
}
extern "C" __global__ void local_past_end(float* out, int i) {
  float a[8];
  for (int k = 0; k < 8; k++) a[k] = out[k];
  a[i] = 3;
  for (int k = 0; k < 8; k++) out[k] = a[(k + i) & 7];
}
extern "C" __global__ void half_barrier(float* out) {
  if (threadIdx.x >= 32)
    asm volatile("bar.sync 1, 96;");
  out[threadIdx.x] = 1;
  __syncthreads();
}
extern "C" __global__ void divergent_barrier(float* out) {
  if (threadIdx.x & 1) {
    out[0] = 1;
    __syncthreads();
  } else {
    out[1] = 1;
    __syncthreads();
  }
}
extern "C" __global__ void mask_without_self(int* out) {
  out[threadIdx.x] = __shfl_sync(0xffff0000u, threadIdx.x, 20);
}
extern "C" __global__ void masks_disagree(int* out) {
  if (threadIdx.x < 16)
    out[threadIdx.x] = __shfl_xor_sync(~0u, threadIdx.x, 1);
  else
    out[threadIdx.x] = __ballot_sync(~0u, threadIdx.x & 1);
}
extern "C" __global__ void trap(float* out) {
  if (threadIdx.x == 5) __trap();
  out[threadIdx.x] = 1;
}
extern "C" __global__ void assertion(int* out, int n) {
  assert(n < 10);
  out[0] = n;
}
typedef float (*Function)(float);
extern "C" __global__ void bad_function(float* out, unsigned long long f) { out[0] = ((Function)f)(1.0f); }
__device__ __noinline__ int deep(int n, volatile int* p) {
  int a[16];
  for (int i = 0; i < 16; i++) a[i] = p[i];
  return n == 0 ? a[p[0]] : deep(n - 1, p) + a[n & 15];
}
extern "C" __global__ void recursion(int* out, int n) { out[0] = deep(n, out); }
extern "C" __global__ void endless(volatile int* out) {
  while (out[1] == 0)
    out[0] = out[0] + 1;
}
extern "C" __global__ void endless_plain(unsigned* out) {
  unsigned x = 1;
  const unsigned step = out[2];  // zero, which the compiler does not know
  unsigned rounds = 0;
  while (x) x = x * 3 + step, rounds++;
  out[0] = rounds;
}
extern "C" __global__ void read_dead_pointer(const float* const* p, float* out) { out[0] = p[0][0]; }
extern "C" __global__ void one_each(const float* in, float* out) { out[blockIdx.x & 63] = in[threadIdx.x]; }
