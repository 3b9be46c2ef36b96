// bf16 GEMM as it was written for Ampere: cp.async into two stages, ldmatrix, mma.m16n8k16.
//
// C (M x N, fp32) = A (M x K) * B (K x N), all row-major; tiles of 128 x 128 x 32, eight warps of 64 x 32.
// Rows of shared memory are cut into units of 16 bytes; unit u of row r lies at u ^ (some bits of r), so that
// the eight rows of an 8 x 8 matrix lie in different banks.
#include <cuda_bf16.h>
#include <stdint.h>

constexpr int BM = 128, BN = 128, BK = 32;

__device__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void copy16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ uint32_t place_a(int row, int unit) { return (row * 4 + (unit ^ (row >> 1 & 3))) * 16; }
__device__ uint32_t place_b(int row, int unit) { return (row * 16 + (unit ^ (row & 7))) * 16; }

template <bool wait>
__device__ void gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
  __shared__ __align__(128) uint8_t memory[2][(BM * BK + BK * BN) * 2];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32, row0 = warp / 4 * 64, column0 = warp % 4 * 32;
  a += blockIdx.y * BM * (size_t)k;
  b += blockIdx.x * BN;
  const auto fetch = [&](int stage, int slice) {
    const uint32_t at = shared_address(memory[stage]);
    for (int i = t; i < BM * BK / 8; i += 256) copy16(at + place_a(i / 4, i % 4), a + (i / 4) * (size_t)k + slice * BK + i % 4 * 8);
    for (int i = t; i < BK * BN / 8; i += 256)
      copy16(at + BM * BK * 2 + place_b(i / 16, i % 16), b + (slice * BK + i / 16) * (size_t)n + i % 16 * 8);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  float sum[4][4][4] = {};
  const int slices = k / BK;
  fetch(0, 0);
  for (int slice = 0; slice < slices; slice++) {
    if (slice + 1 < slices) fetch((slice + 1) & 1, slice + 1);
    if (!wait) {
    } else if (slice + 1 < slices) {
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    const uint32_t at_a = shared_address(memory[slice & 1]), at_b = at_a + BM * BK * 2;
    for (int step = 0; step < BK / 16; step++) {
      uint32_t fa[4][4], fb[2][4];
      for (int i = 0; i < 4; i++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fa[i][0]), "=r"(fa[i][1]), "=r"(fa[i][2]), "=r"(fa[i][3])
                     : "r"(at_a + place_a(row0 + i * 16 + lane % 16, step * 2 + lane / 16)));
      for (int j = 0; j < 2; j++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fb[j][0]), "=r"(fb[j][1]), "=r"(fb[j][2]), "=r"(fb[j][3])
                     : "r"(at_b + place_b(step * 16 + lane % 16, (column0 + j * 16) / 8 + lane / 16)));
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
          asm volatile(
              "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
              : "+f"(sum[i][j][0]), "+f"(sum[i][j][1]), "+f"(sum[i][j][2]), "+f"(sum[i][j][3])
              : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j / 2][j % 2 * 2]), "r"(fb[j / 2][j % 2 * 2 + 1]));
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      for (int h = 0; h < 2; h++) {
        const int row = blockIdx.y * BM + row0 + i * 16 + h * 8 + lane / 4, column = blockIdx.x * BN + column0 + j * 8 + lane % 4 * 2;
        *(float2*)(c + row * (size_t)n + column) = make_float2(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
      }
}

extern "C" __global__ void __launch_bounds__(256) multiply(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
  gemm<true>(a, b, c, n, k);
}
extern "C" __global__ void __launch_bounds__(256) no_wait(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
  gemm<false>(a, b, c, n, k);
}
