// A candidate with host code: tensor maps in a parameter, in constant and in global memory, and a cluster.
#include <cuda.h>
#include <cuda_runtime.h>

#include "solve.h"

struct Maps {
  int shift;
  CUtensorMap in, out;
};
__constant__ CUtensorMap constant_map;

__device__ unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Rows [8 block, 8 block + 8) of `a` plus the same rows of the cluster's other block, into `c`.
__global__ void add_neighbours(const __grid_constant__ Maps maps, const CUtensorMap* global_map) {
  extern __shared__ __align__(1024) float box[];  // 4 x 256: one box of each block, twice the same way; the sum
  __shared__ uint64_t barrier;
  unsigned b = address(&barrier), rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(b) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(3 * 1024) : "memory");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(address(box + 256 * rank)), "l"(&maps.in),
                 "r"(maps.shift), "r"(blockIdx.x * 8), "r"(b), "h"((unsigned short)3) : "memory");
    const CUtensorMap* other = rank ? &constant_map : global_map;
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(address(box + 512)), "l"(other), "r"(0), "r"(blockIdx.x * 8), "r"(b) : "memory");
  }
  asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra again;\n}" ::"r"(b) : "memory");
  for (int i = threadIdx.x; i < 256; i += blockDim.x) box[768 + i] = box[i] + box[256 + i] + 1000 * box[512 + i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&maps.out), "r"(0), "r"(blockIdx.x * 8), "r"(address(box + 768)) : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}

static CUtensorMap describe(const float* matrix, int64_t rows) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
  auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  CUtensorMap map;
  cuuint64_t extents[2] = {32, (cuuint64_t)rows}, pitch[1] = {128};
  cuuint32_t box[2] = {32, 8}, steps[2] = {1, 1};
  encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, const_cast<float*>(matrix), extents, pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
         CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

extern "C" void solve(const float* a, float* c, int64_t rows, cudaStream_t stream) {
  alignas(64) Maps maps = {4, describe(a, rows), describe(c, rows)};
  cudaMemcpyToSymbolAsync(constant_map, &maps.in, sizeof maps.in, 0, cudaMemcpyHostToDevice, stream);
  CUtensorMap* global_map;
  cudaMallocAsync(&global_map, sizeof *global_map, stream);
  cudaMemcpyAsync(global_map, &maps.in, sizeof maps.in, cudaMemcpyHostToDevice, stream);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)((rows + 15) / 16 * 2));
  config.blockDim = dim3(64);
  config.dynamicSmemBytes = 4096;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, add_neighbours, maps, (const CUtensorMap*)global_map);
}
