// bf16 GEMM with wgmma out of shared memory that ordinary stores have filled, for every swizzle.
//
// C (M x N, fp32) = A (M x K) * B, where B is K x N row-major (MN-major for wgmma) or N x K (K-major). One
// warpgroup a block, tiles of 64 x 128; a tile's slice along k is as long as the swizzle's span.
#include <cuda_bf16.h>
#include <stdint.h>

constexpr int BM = 64, BN = 128;

__device__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ uint64_t describe(uint32_t address, int leading, int stride, int span) {
  const uint64_t mode = span == 128 ? 1 : span == 64 ? 2 : span == 32 ? 3 : 0;
  return (address & 0x3ffff) >> 4 | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | mode << 62;
}

#define F8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
template <int TURNED>
__device__ void multiply(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,"
      "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, 1, 1, 1, 0, %66;"
      : F8(d, 0), F8(d, 8), F8(d, 16), F8(d, 24), F8(d, 32), F8(d, 40), F8(d, 48), F8(d, 56)
      : "l"(a), "l"(b), "n"(TURNED));
}

// SPAN in bytes, 16 for no swizzle. In the K-major tiles a row is SPAN bytes (none: 64) long.
template <int SPAN, bool TURNED>
__device__ void gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
  extern __shared__ __align__(1024) uint8_t memory[];
  constexpr int ROW = SPAN == 16 ? 64 : SPAN, BK = ROW / 2 < 16 ? 16 : ROW / 2, TURNS = SPAN == 16 ? 1 : 128 / SPAN;
  constexpr int A_BYTES = (BM * BK * 2 + 1023) / 1024 * 1024;
  const int t = threadIdx.x;
  uint8_t *const sa = memory, *const sb = memory + A_BYTES;
  // K-major: without swizzle 8 x 8 matrices of 128 bytes, those along k next to each other.
  const auto along = [&](uint8_t* base, int row, int unit) {
    if (SPAN == 16) return base + row / 8 * (BK / 8 * 128) + unit * 128 + row % 8 * 16;
    return base + row * SPAN + (unit ^ (row / TURNS & (SPAN / 16 - 1))) * 16;
  };
  // MN-major: rows of SPAN bytes along n, eight of them (k) a pattern; patterns along k, then along n.
  const auto across = [&](uint8_t* base, int kk, int unit) {
    if (SPAN == 16) return base + unit * (BK / 8 * 128) + kk / 8 * 128 + kk % 8 * 16;
    const int units = SPAN / 16;
    return base + unit / units * (BK * SPAN) + kk * SPAN + ((unit % units) ^ (kk / TURNS & (units - 1))) * 16;
  };
  float sum[64] = {};
  a += blockIdx.y * BM * (size_t)k;
  for (int slice = 0; slice < k; slice += BK) {
    for (int i = t; i < BM * BK / 8; i += 128)
      *(uint4*)along(sa, i / (BK / 8), i % (BK / 8)) = *(const uint4*)(a + i / (BK / 8) * (size_t)k + slice + i % (BK / 8) * 8);
    for (int i = t; i < BN * BK / 8; i += 128)
      if (TURNED)
        *(uint4*)across(sb, i / (BN / 8), i % (BN / 8)) =
            *(const uint4*)(b + (slice + i / (BN / 8)) * (size_t)n + blockIdx.x * BN + i % (BN / 8) * 8);
      else
        *(uint4*)along(sb, i / (BK / 8), i % (BK / 8)) =
            *(const uint4*)(b + (blockIdx.x * BN + i / (BK / 8)) * (size_t)k + slice + i % (BK / 8) * 8);
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int step = 0; step < BK / 16; step++) {
      const uint64_t da = SPAN == 16 ? describe(shared_address(sa) + step * 256, 128, BK / 8 * 128, SPAN)
                                     : describe(shared_address(sa) + step * 32, 16, 8 * SPAN, SPAN);
      const uint64_t db = !TURNED ? (SPAN == 16 ? describe(shared_address(sb) + step * 256, 128, BK / 8 * 128, SPAN)
                                                : describe(shared_address(sb) + step * 32, 16, 8 * SPAN, SPAN))
                                  : (SPAN == 16 ? describe(shared_address(sb) + step * 256, 128, BK / 8 * 128, SPAN)
                                                : describe(shared_address(sb) + step * 16 * SPAN, BK * SPAN, 8 * SPAN, SPAN));
      multiply<TURNED>(sum, da, db);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  for (int i = 0; i < 64; i += 2) {
    const int row = blockIdx.y * BM + t / 32 * 16 + t % 32 / 4 + (i % 4 >= 2 ? 8 : 0), column = blockIdx.x * BN + i / 4 * 8 + t % 4 * 2;
    *(float2*)(c + row * (size_t)n + column) = make_float2(sum[i], sum[i + 1]);
  }
}

#define KERNEL(NAME, SPAN, TURNED)                                                                          \
  extern "C" __global__ void __launch_bounds__(128)                                                         \
      NAME(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {                        \
    gemm<SPAN, TURNED>(a, b, c, n, k);                                                                      \
  }
KERNEL(along_16, 16, false)
KERNEL(along_32, 32, false)
KERNEL(along_64, 64, false)
KERNEL(along_128, 128, false)
KERNEL(across_16, 16, true)
KERNEL(across_32, 32, true)
KERNEL(across_64, 64, true)
KERNEL(across_128, 128, true)
