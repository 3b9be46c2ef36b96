// CUB's block collectives.
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>

extern "C" __global__ void scan(const int* in, int* out) {
  using Load = cub::BlockLoad<int, 128, 4, cub::BLOCK_LOAD_TRANSPOSE>;
  using Store = cub::BlockStore<int, 128, 4, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<int, 128>;
  __shared__ union { Load::TempStorage load; Store::TempStorage store; Scan::TempStorage scan; } temp;
  int items[4];
  Load(temp.load).Load(in + blockIdx.x * 512, items);
  __syncthreads();
  Scan(temp.scan).ExclusiveSum(items, items);
  __syncthreads();
  Store(temp.store).Store(out + blockIdx.x * 512, items);
}

extern "C" __global__ void sort(const float* in, float* out, int* where) {
  using Load = cub::BlockLoad<float, 256, 8, cub::BLOCK_LOAD_VECTORIZE>;
  using Sort = cub::BlockRadixSort<float, 256, 8, int>;
  __shared__ union { Load::TempStorage load; Sort::TempStorage sort; } temp;
  float keys[8];
  int values[8];
  Load(temp.load).Load(in + blockIdx.x * 2048, keys);
  for (int i = 0; i < 8; i++) values[i] = threadIdx.x * 8 + i;
  __syncthreads();
  Sort(temp.sort).SortDescending(keys, values);
  for (int i = 0; i < 8; i++) {
    out[blockIdx.x * 2048 + threadIdx.x * 8 + i] = keys[i];
    where[blockIdx.x * 2048 + threadIdx.x * 8 + i] = values[i];
  }
}

extern "C" __global__ void reduce(const double* in, double* out) {
  using Reduce = cub::BlockReduce<double, 96>;
  __shared__ Reduce::TempStorage temp;
  const double most = Reduce(temp).Reduce(in[threadIdx.x], [](double a, double b) { return a > b ? a : b; });
  if (threadIdx.x == 0) *out = most;
}
