// CUTLASS's GEMM for sm_80 as its users call it, host code and all.
// C = A * B: A row-major (m x k), B column-major (k x n), C row-major. ELEMENT, OUT, SUM, the tiles and
// OPERATOR are defined before this file is read.
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm.h>

#include "solve.h"

using Epilogue = cutlass::epilogue::thread::LinearCombination<OUT, 16 / sizeof(OUT), SUM, SUM>;
using Gemm = cutlass::gemm::device::Gemm<ELEMENT, cutlass::layout::RowMajor, ELEMENT, cutlass::layout::ColumnMajor, OUT,
                                         cutlass::layout::RowMajor, SUM, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
                                         cutlass::gemm::GemmShape<BLOCK>, cutlass::gemm::GemmShape<WARP>,
                                         cutlass::gemm::GemmShape<INSTRUCTION>, Epilogue,
                                         cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, 4,
                                         16 / sizeof(ELEMENT), 16 / sizeof(ELEMENT), SPLIT_K, cutlass::arch::OPERATOR>;

void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, int64_t slices, cudaStream_t stream) {
  const int M = static_cast<int>(m), N = static_cast<int>(n), K = static_cast<int>(k);
  typename Gemm::Arguments arguments({M, N, K}, {reinterpret_cast<const ELEMENT*>(a), K}, {reinterpret_cast<const ELEMENT*>(b), K},
                                     {reinterpret_cast<OUT*>(c), N}, {reinterpret_cast<OUT*>(c), N}, {SUM(1), SUM(0)},
                                     static_cast<int>(slices));
  Gemm gemm;
  void* scratch = nullptr;
  if (Gemm::can_implement(arguments) != cutlass::Status::kSuccess) return;  // c stays poisoned
  if (const size_t bytes = Gemm::get_workspace_size(arguments)) cudaMallocAsync(&scratch, bytes, stream);
  gemm(arguments, scratch, stream);
}
