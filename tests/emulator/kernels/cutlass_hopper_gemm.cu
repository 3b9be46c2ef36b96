// CUTLASS's warp-specialised GEMM for sm_90a from its collective builders, host code and all.
// D = A * B: A row-major (m x k), B column-major (k x n), D row-major. What is defined before this file
// is read chooses the element (ELEMENT, OUT), the tile (TILE_M, TILE_N, TILE_K), the cluster (CLUSTER_M)
// and the schedule (MAINLOOP, EPILOGUE).
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "solve.h"

using namespace cute;

using TileShape = Shape<Int<TILE_M>, Int<TILE_N>, Int<TILE_K>>;
using ClusterShape = Shape<Int<CLUSTER_M>, _1, _1>;
constexpr int IN_ALIGNMENT = 16 / sizeof(ELEMENT), OUT_ALIGNMENT = 16 / sizeof(OUT);

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape, cutlass::epilogue::collective::EpilogueTileAuto, float, float,
    void, cutlass::layout::RowMajor, OUT_ALIGNMENT, OUT, cutlass::layout::RowMajor, OUT_ALIGNMENT, cutlass::epilogue::EPILOGUE>::CollectiveOp;

using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, ELEMENT, cutlass::layout::RowMajor, IN_ALIGNMENT, ELEMENT,
    cutlass::layout::ColumnMajor, IN_ALIGNMENT, float, TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::MAINLOOP>::CollectiveOp;

using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  const int M = static_cast<int>(m), N = static_cast<int>(n), K = static_cast<int>(k);
  const auto stride_a = make_stride(int64_t(K), _1{}, int64_t(0));
  const auto stride_b = make_stride(int64_t(K), _1{}, int64_t(0));
  const auto stride_c = make_stride(int64_t(N), _1{}, int64_t(0));
  typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm,
                                     {M, N, K, 1},
                                     {reinterpret_cast<const ELEMENT*>(a), stride_a, reinterpret_cast<const ELEMENT*>(b), stride_b},
                                     {{1.0f, 0.0f}, nullptr, stride_c, reinterpret_cast<OUT*>(c), stride_c}};
  Gemm gemm;
  void* scratch = nullptr;
  if (const size_t bytes = Gemm::get_workspace_size(arguments)) cudaMallocAsync(&scratch, bytes, stream);
  if (gemm.can_implement(arguments) != cutlass::Status::kSuccess) return;  // c stays poisoned
  if (gemm.initialize(arguments, scratch, stream) != cutlass::Status::kSuccess) return;
  gemm.run(stream);
}
