// The wmma API: whole products through fragments, every type and shape, every layout.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <stdint.h>

using namespace nvcuda;

// One warp, one tile: D = A * B + C. Leading dimensions are given, memory is shared or global.
template <int M, int N, int K, class T, class Frag, class Acc, class LayoutA, class LayoutB, bool through_shared>
__device__ void product(const T* a, const T* b, const Acc* c, Acc* d, int lda, int ldb, int ldc, bool columns) {
  wmma::fragment<wmma::matrix_a, M, N, K, Frag, LayoutA> fa;
  wmma::fragment<wmma::matrix_b, M, N, K, Frag, LayoutB> fb;
  wmma::fragment<wmma::accumulator, M, N, K, Acc> fc, fd;
  const wmma::layout_t layout = columns ? wmma::mem_col_major : wmma::mem_row_major;
  if constexpr (through_shared) {
    extern __shared__ __align__(32) unsigned char memory[];
    T* sa = (T*)memory;
    T* sb = (T*)(memory + 16384);
    for (int i = threadIdx.x; i < 2048; i += 32) sa[i] = a[i], sb[i] = b[i];
    wmma::load_matrix_sync(fa, sa, lda);  // without __syncwarp: the load itself meets
    wmma::load_matrix_sync(fb, sb, ldb);
  } else {
    wmma::load_matrix_sync(fa, a, lda);
    wmma::load_matrix_sync(fb, b, ldb);
  }
  wmma::load_matrix_sync(fc, c, ldc, layout);
  for (int i = 0; i < fa.num_elements; i++) fa.x[i] = fa.x[i] + fa.x[i];  // as alpha * A, element by element
  wmma::mma_sync(fd, fa, fb, fc);
  wmma::store_matrix_sync(d, fd, ldc, layout);
}

#define KERNEL(NAME, M, N, K, T, FRAG, ACC, LA, LB, SHARED)                                                            \
  extern "C" __global__ void NAME(const T* a, const T* b, const ACC* c, ACC* d, int lda, int ldb, int ldc, int columns) { \
    product<M, N, K, T, FRAG, ACC, wmma::LA##_major, wmma::LB##_major, SHARED>(a, b, c, d, lda, ldb, ldc, columns);     \
  }
KERNEL(half_16_16_rr, 16, 16, 16, half, half, float, row, row, false)
KERNEL(half_16_16_rc, 16, 16, 16, half, half, float, row, col, true)
KERNEL(half_16_16_cr, 16, 16, 16, half, half, float, col, row, true)
KERNEL(half_16_16_cc, 16, 16, 16, half, half, half, col, col, false)
KERNEL(half_32_8_rc, 32, 8, 16, half, half, float, row, col, false)
KERNEL(half_8_32_cr, 8, 32, 16, half, half, half, col, row, true)
KERNEL(bfloat_16_16_rc, 16, 16, 16, __nv_bfloat16, __nv_bfloat16, float, row, col, true)
KERNEL(bfloat_32_8_cc, 32, 8, 16, __nv_bfloat16, __nv_bfloat16, float, col, col, false)
KERNEL(bfloat_8_32_rr, 8, 32, 16, __nv_bfloat16, __nv_bfloat16, float, row, row, false)
KERNEL(tf32_16_16_rc, 16, 16, 8, float, wmma::precision::tf32, float, row, col, true)
KERNEL(tf32_16_16_cr, 16, 16, 8, float, wmma::precision::tf32, float, col, row, false)
KERNEL(signed_16_16_rc, 16, 16, 16, signed char, signed char, int, row, col, true)
KERNEL(unsigned_16_16_cr, 16, 16, 16, unsigned char, unsigned char, int, col, row, false)
KERNEL(signed_32_8_rr, 32, 8, 16, signed char, signed char, int, row, row, false)
KERNEL(signed_8_32_cc, 8, 32, 16, signed char, signed char, int, col, col, true)
KERNEL(double_8_8_rc, 8, 8, 4, double, double, double, row, col, true)
KERNEL(double_8_8_cr, 8, 8, 4, double, double, double, col, row, false)
KERNEL(half_32_8_cr, 32, 8, 16, half, half, half, col, row, false)
KERNEL(half_8_32_rr, 8, 32, 16, half, half, float, row, row, true)
KERNEL(unsigned_32_8_cc, 32, 8, 16, unsigned char, unsigned char, int, col, col, true)
KERNEL(unsigned_8_32_rc, 8, 32, 16, unsigned char, unsigned char, int, row, col, false)

// C (M x N) = A (M x K) * B (K x N), all row-major, four warps a block of 32 x 32.
extern "C" __global__ void gemm(const half* a, const half* b, float* c, int n, int k) {
  const int warp = threadIdx.x / 32, row = blockIdx.y * 32 + warp / 2 * 16, column = blockIdx.x * 32 + warp % 2 * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int i = 0; i < k; i += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::load_matrix_sync(fa, a + row * k + i, k);
    wmma::load_matrix_sync(fb, b + i * n + column, n);
    wmma::mma_sync(sum, fa, fb, sum);
  }
  wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}

// Elements below a byte, packed into words: A goes by rows and B by columns, `pitch` elements apart.
template <int K, class Precision>
__device__ void packed(const int* a, const int* b, const int* c, int* d, int pitch, bool exclusive) {
  wmma::fragment<wmma::matrix_a, 8, 8, K, Precision, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 8, 8, K, Precision, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 8, 8, K, int> fc;
  wmma::load_matrix_sync(fa, a, pitch);
  wmma::load_matrix_sync(fb, b, pitch);
  wmma::load_matrix_sync(fc, c, 8, wmma::mem_row_major);
  if constexpr (K == 128) {
    if (exclusive) wmma::bmma_sync(fc, fa, fb, fc, wmma::experimental::bmmaBitOpXOR);
    else wmma::bmma_sync(fc, fa, fb, fc, wmma::experimental::bmmaBitOpAND);
  } else {
    wmma::mma_sync(fc, fa, fb, fc);
  }
  wmma::store_matrix_sync(d, fc, 8, wmma::mem_row_major);
}
#define PACKED(NAME, K, PRECISION)                                                                              \
  extern "C" __global__ void NAME(const int* a, const int* b, const int* c, int* d, int pitch, int exclusive) { \
    packed<K, wmma::experimental::precision::PRECISION>(a, b, c, d, pitch, exclusive);                          \
  }
PACKED(packed_s4, 32, s4)
PACKED(packed_u4, 32, u4)
PACKED(packed_b1, 128, b1)
