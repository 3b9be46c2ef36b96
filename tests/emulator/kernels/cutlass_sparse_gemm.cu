// CUTLASS's GEMM with a matrix A of which half is zero, for sm_80, host code and all.
// C = A * B: A row-major (m x k, its k / 2 kept elements), B column-major, C row-major; E says which elements
// were kept, in CUTLASS's own order. ELEMENT, OUT, SUM, the tiles and OPERATOR are defined before this file.
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_sparse.h>

#include "solve.h"

using Epilogue = cutlass::epilogue::thread::LinearCombination<OUT, 16 / sizeof(OUT), SUM, SUM>;
using Gemm = cutlass::gemm::device::SparseGemm<ELEMENT, cutlass::layout::RowMajor, ELEMENT, cutlass::layout::ColumnMajor, OUT,
                                               cutlass::layout::RowMajor, SUM, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
                                               cutlass::gemm::GemmShape<BLOCK>, cutlass::gemm::GemmShape<WARP>,
                                               cutlass::gemm::GemmShape<INSTRUCTION>, Epilogue,
                                               cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, 3>;

void solve(const a_t* a, const b_t* b, const e_t* e, c_t* c, int64_t m, int64_t n, int64_t kept, int64_t words, cudaStream_t stream) {
  const int M = static_cast<int>(m), N = static_cast<int>(n), K = static_cast<int>(2 * kept);
  using E = typename Gemm::ElementE;
  static_assert(sizeof(E) == sizeof(e_t));
  typename Gemm::Arguments arguments(
      {M, N, K}, {reinterpret_cast<const ELEMENT*>(a), K / 2}, {reinterpret_cast<const ELEMENT*>(b), K}, {reinterpret_cast<OUT*>(c), N},
      {reinterpret_cast<OUT*>(c), N},
      {const_cast<E*>(reinterpret_cast<const E*>(e)), Gemm::LayoutE::packed({M, static_cast<int>(words)})}, {SUM(1), SUM(0)}, 1);
  Gemm gemm;
  void* scratch = nullptr;
  if (Gemm::can_implement(arguments) != cutlass::Status::kSuccess) return;  // c stays poisoned
  if (const size_t bytes = Gemm::get_workspace_size(arguments)) cudaMallocAsync(&scratch, bytes, stream);
  gemm(arguments, scratch, stream);
}
