// Tensor maps both ways: as a kernel parameter, and uploaded to device memory as bytes. Each block
// loads one tile with the bulk copy engine and stores it transposed.
#include "solve.h"

#include <cuda.h>
#include <cuda/barrier>

constexpr int kTile = 32;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
namespace ptx = cuda::device::experimental;

__device__ void load_and_store(const CUtensorMap* map, float* y, int rows) {
  __shared__ alignas(128) float tile[kTile][kTile];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) {
    init(&barrier, blockDim.x);
    ptx::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  Barrier::arrival_token token;
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk_tensor_2d_global_to_shared(&tile, map, blockIdx.x * kTile, blockIdx.y * kTile, barrier);
    token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof tile);
  } else {
    token = barrier.arrive();
  }
  barrier.wait(std::move(token));
  for (int r = threadIdx.x / kTile; r < kTile; r += blockDim.x / kTile) {
    const int c = threadIdx.x % kTile;
    y[(blockIdx.x * kTile + r) * int64_t(rows) + blockIdx.y * kTile + c] = tile[c][r];
  }
}

__global__ void from_parameter(const __grid_constant__ CUtensorMap map, float* y, int rows) {
  load_and_store(&map, y, rows);
}

__global__ void from_memory(const CUtensorMap* map, float* y, int rows) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
  load_and_store(map, y, rows);
}

extern "C" void solve(const x_t* x, y_t* y, z_t* z, int64_t rows, int64_t columns, cudaStream_t stream) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
  auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  alignas(64) CUtensorMap map{};
  cuuint64_t sizes[2] = {cuuint64_t(columns), cuuint64_t(rows)}, strides[1] = {cuuint64_t(columns) * 4};
  cuuint32_t box[2] = {kTile, kTile}, steps[2] = {1, 1};
  encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void*)x, sizes, strides, box, steps,
         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CUtensorMap* there = nullptr;
  cudaMalloc(&there, sizeof map);
  cudaMemcpyAsync(there, &map, sizeof map, cudaMemcpyHostToDevice, stream);
  const dim3 grid(unsigned(columns / kTile), unsigned(rows / kTile));
  from_parameter<<<grid, 256, 0, stream>>>(map, y, int(rows));
  from_memory<<<grid, 256, 0, stream>>>(there, z, int(rows));
}
