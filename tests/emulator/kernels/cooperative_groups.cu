// Cooperative groups as their manual uses them, from the launch attributes to the collectives.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/barrier>

#include "solve.h"

namespace cg = cooperative_groups;

// Each thread's value is a[i]; `c` gets what its group says.
__global__ void tiles(const int32_t* a, int32_t* c) {
  const auto block = cg::this_thread_block();
  const auto warp = cg::tiled_partition<32>(block);
  const auto quad = cg::tiled_partition<4>(warp);
  const int i = cg::this_grid().thread_rank(), x = a[i];
  const int sum = cg::reduce(warp, x, cg::plus<int>()), least = cg::reduce(quad, x, cg::less<int>());
  c[i] = sum * 3 + least + quad.meta_group_rank() + warp.shfl_xor(x, 5) + quad.any(x > 40) + 2 * quad.all(x > 0);
}

__global__ void scans(const int32_t* a, int32_t* c) {
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  const int i = cg::this_grid().thread_rank();
  c[i] = cg::inclusive_scan(tile, a[i]) + 1000 * cg::exclusive_scan(tile, a[i], cg::greater<int>());
}

// Lanes that take a branch together, and those with the same label, add up among themselves.
__global__ void formed(const int32_t* a, int32_t* c) {
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const int i = cg::this_grid().thread_rank(), x = a[i];
  int mine = 0;
  if (x % 3 == 0) {
    const auto together = cg::coalesced_threads();
    mine = cg::reduce(together, x, cg::plus<int>()) + together.size();
  }
  const auto same = cg::labeled_partition(warp, x & 7);
  const auto odd = cg::binary_partition(warp, (x & 1) != 0);
  c[i] = mine + 10000 * same.size() + 100 * same.thread_rank() + cg::reduce(odd, 1, cg::plus<int>());
}

// A tile larger than a warp, and copies that the whole block waits for.
__global__ void copied(const int32_t* a, int32_t* c) {
  __shared__ alignas(16) int32_t stage[256];
  __shared__ cg::block_tile_memory<256> memory;
  const auto block = cg::this_thread_block(memory);
  cg::memcpy_async(block, stage, a + blockIdx.x * 256, cuda::aligned_size_t<16>(sizeof stage));
  cg::wait(block);
  const auto half = cg::tiled_partition<128>(block);
  c[blockIdx.x * 256 + threadIdx.x] = cg::reduce(half, stage[255 - threadIdx.x], cg::plus<int>());
}

// Every block adds to every slot; after grid.sync() all of them are seen.
__global__ void grid_wide(const int32_t* a, int32_t* c, int32_t* sums) {
  const auto grid = cg::this_grid();
  const int i = grid.thread_rank();
  if (threadIdx.x == 0) sums[blockIdx.x] = 0;
  grid.sync();
  atomicAdd(&sums[(blockIdx.x + threadIdx.x) % gridDim.x], a[i]);
  grid.sync();
  int total = 0;
  for (int b = 0; b < int(gridDim.x); ++b) total += sums[b];
  c[i] = total + sums[blockIdx.x];
}

// A neighbour's shared memory, through its generic address.
__global__ void __cluster_dims__(2, 1, 1) clusters(const int32_t* a, int32_t* c) {
  __shared__ int32_t mine[256];
  const auto cluster = cg::this_cluster();
  const int i = cg::this_grid().thread_rank();
  mine[threadIdx.x] = a[i];
  cluster.sync();
  int32_t* other = cluster.map_shared_rank(mine, cluster.block_rank() ^ 1);
  c[i] = other[255 - threadIdx.x] + 1000 * cluster.block_rank();
  cluster.sync();
}

void solve(const a_t* a, c_t* c, sums_t* sums, int64_t blocks, int64_t which, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(blocks)), block(256);
  switch (which) {
    case 1: tiles<<<grid, block, 0, stream>>>(a, c); break;
    case 2: scans<<<grid, block, 0, stream>>>(a, c); break;
    case 3: formed<<<grid, block, 0, stream>>>(a, c); break;
    case 4: copied<<<grid, block, 0, stream>>>(a, c); break;
    case 5: {
      void* arguments[] = {&a, &c, &sums};
      cudaLaunchCooperativeKernel(grid_wide, grid, block, arguments, 0, stream);
      break;
    }
    default: clusters<<<grid, block, 0, stream>>>(a, c);
  }
}
