// Tries to carry a mark from one sample to the next through every place that device code can write.
//
// For each place: `look` says what is there at the beginning (found), then the mark is left, then
// `look` again in a later launch of the same sample (seen). The harness wins if found is 0 in every
// sample; the test is only worth something where seen is 1.
#include "solve.h"

#include <cstdint>

constexpr unsigned kMark = 0xC0FFEE42u;
constexpr int kShared = 200 * 1024;

enum Place { kOutput, kScratch, kNamed, kStatic, kFunctionStatic, kConstant, kSlack, kShared_, kLocal, kRegisters };

__device__ unsigned named_variable = 1;
static __device__ unsigned static_variable;
__constant__ unsigned constant_table[64] = {1, 2, 3};

__device__ unsigned* function_static() {
  static unsigned hidden[4];
  return hidden;
}

// A local array that nobody has written: what the last thread in this place left there.
__device__ __noinline__ unsigned local_memory(bool write) {
  unsigned array[128];
  unsigned* p = array;
  asm volatile("" : "+l"(p));  // the compiler must not know what p points at
  unsigned hits = 0;
  for (int i = 0; i < 128; ++i) {
    if (write)
      asm volatile("st.u32 [%0], %1;" ::"l"(p + i), "r"(kMark) : "memory");
    else {
      unsigned v;
      asm volatile("ld.u32 %0, [%1];" : "=r"(v) : "l"(p + i) : "memory");
      hits += v == kMark;
    }
  }
  asm volatile("" ::"l"(p), "l"(array) : "memory");
  return hits;
}

__device__ unsigned shared_memory(bool write) {
  extern __shared__ unsigned words[];
  volatile unsigned* p = words;
  unsigned hits = 0;
  for (int i = threadIdx.x; i < kShared / 4; i += blockDim.x) {
    if (write)
      p[i] = kMark;
    else
      hits += p[i] == kMark;
  }
  return hits;
}

// A register that nobody has written; all marked ones are written by `leave_registers`.
__global__ void look_registers(int* result) {
  unsigned v;
  asm volatile("{ .reg .u32 never; mov.u32 %0, never; }" : "=r"(v));
  if (v == kMark) atomicAdd(result + kRegisters, 1);
}

__global__ void __launch_bounds__(1024, 1) leave_registers(unsigned* out) {
  __shared__ unsigned words[1024];
  volatile unsigned* shared = words;
  shared[threadIdx.x] = kMark;
  __syncthreads();
  unsigned held[48];
#pragma unroll
  for (int i = 0; i < 48; ++i) held[i] = shared[(threadIdx.x + i) & 1023];
  __syncthreads();
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < 48; ++i) shared[(threadIdx.x * 2 + i) & 1023] = held[i];
#pragma unroll
  for (int i = 0; i < 48; ++i) sum += held[i];
  if (sum == 1) out[0] = sum;
}

__global__ void look(const unsigned* out, int64_t n, const unsigned* scratch, const unsigned* constants, int* result) {
  const unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t == 0) {
    result[kOutput] = out[n - 1] == kMark;
    result[kScratch] = scratch[17] == kMark;
    result[kNamed] = *(volatile unsigned*)&named_variable == kMark;
    result[kStatic] = *(volatile unsigned*)&static_variable == kMark;
    result[kFunctionStatic] = *(volatile unsigned*)function_static() == kMark;
    result[kConstant] = *(volatile const unsigned*)(constants + 60) == kMark;
    result[kSlack] = *(volatile const unsigned*)(out - 64) == kMark;
  }
  if (shared_memory(false)) atomicAdd(result + kShared_, 1);
  if (local_memory(false)) atomicAdd(result + kLocal, 1);
}

__global__ void leave(unsigned* out, int64_t n, unsigned* scratch, unsigned* constants) {
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    out[n - 1] = kMark;
    scratch[17] = kMark;
    *(volatile unsigned*)&named_variable = kMark;
    *(volatile unsigned*)&static_variable = kMark;
    *(volatile unsigned*)function_static() = kMark;
    constants[60] = kMark;
    out[-64] = kMark;
  }
  shared_memory(true);
  if (local_memory(true)) out[0] = 1;
}

__global__ void clear(int* a, int* b) {
  a[threadIdx.x] = b[threadIdx.x] = 0;
}

extern "C" void solve(const x_t*, out_t* out, found_t* found, seen_t* seen, int64_t n, cudaStream_t stream) {
  unsigned* scratch = nullptr;
  void* constants = nullptr;
  cudaMalloc(&scratch, 1 << 20);
  cudaGetSymbolAddress(&constants, constant_table);
  cudaFuncSetAttribute(look, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  cudaFuncSetAttribute(leave, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  int multiprocessors = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  clear<<<1, 16, 0, stream>>>(found, seen);
  look_registers<<<2 * multiprocessors, 1024, 0, stream>>>(found);
  look<<<multiprocessors, 1024, kShared, stream>>>((unsigned*)out, n, scratch, (unsigned*)constants, found);
  leave<<<multiprocessors, 1024, kShared, stream>>>((unsigned*)out, n, scratch, (unsigned*)constants);
  look<<<multiprocessors, 1024, kShared, stream>>>((unsigned*)out, n, scratch, (unsigned*)constants, seen);
  leave_registers<<<multiprocessors, 1024, 0, stream>>>((unsigned*)out);
  look_registers<<<2 * multiprocessors, 1024, 0, stream>>>(seen);
}
