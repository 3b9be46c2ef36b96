// What the snippets of the recorder's tests share: kernels, device variables, small helpers.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <csignal>
#include <unistd.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <stdexcept>
#include <cuda_profiler_api.h>
__device__ float table[64];
__constant__ float fixed[32];
__device__ const float* pointers[4];
struct Mixed { char tag; const float* in; float factor; };
__global__ void add(const float* x, float* y, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] += x[i] + table[i & 63] + fixed[i & 31] + *pointers[i & 3];
}
__global__ void mixed(Mixed m, char c, double* out) { *out = m.factor + m.tag + c + *m.in; }
__global__ void __launch_bounds__(128) bounded(float* y) { y[threadIdx.x] = 1; }
__global__ void dynamic(float* y) {
  extern __shared__ float s[];
  s[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x ^ 1];
}
__global__ void nothing() {}
__global__ void __cluster_dims__(2, 1, 1) fixed_cluster(float* y) { y[blockIdx.x] = 1; }
__global__ void scalars(float* y, int32_t count, float alpha, double beta) { *y = count + alpha + beta; }
__global__ void mapped(const __grid_constant__ CUtensorMap m, float* y) { *y = (float)(size_t)&m; }
__constant__ CUtensorMap constant_map;
static void ok(cudaError_t e) {
  if (e != cudaSuccess) abort();
}
static cudaLaunchConfig_t config(dim3 grid, dim3 block, cudaStream_t s, cudaLaunchAttribute* attrs, int count,
                                 size_t shared = 0) {
  cudaLaunchConfig_t c = {};
  c.gridDim = grid; c.blockDim = block; c.stream = s; c.attrs = attrs; c.numAttrs = count; c.dynamicSmemBytes = shared;
  return c;
}
typedef CUresult (*Encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
  const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static CUresult encode(CUtensorMap* m, const float* base, cuuint32_t box) {
  void* f = nullptr;
  cudaDriverEntryPointQueryResult r;
  ok(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &r));
  cuuint64_t dims[2] = {32, 30}, strides[1] = {128};
  cuuint32_t boxes[2] = {box, 8}, steps[2] = {1, 1};
  return ((Encode)f)(m, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void*)base, dims, strides, boxes, steps,
    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
