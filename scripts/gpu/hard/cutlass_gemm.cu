// A warp-specialised bf16 GEMM of CUTLASS for sm_90a: clusters, TMA, tensor maps inside parameters.
#include "solve.h"

#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

using namespace cute;
using Element = cutlass::bfloat16_t;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using GemmTile = Shape<_128, _128, _64>;
using GemmCluster = Shape<_2, _1, _1>;
constexpr int kAligned = 8;

using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, GemmTile, GemmCluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Row, kAligned, Element, Row, kAligned,
    cutlass::epilogue::TmaWarpSpecialized>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, Row, kAligned, Element, Column, kAligned, float,
    GemmTile, GemmCluster,
    cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::KernelTmaWarpSpecializedPingpong>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  const int M = int(m), N = int(n), K = int(k);
  typename Kernel::StrideA stride_a{};
  typename Kernel::StrideB stride_b{};
  typename Kernel::StrideD stride_d{};
  get<0>(stride_a) = K;
  get<0>(stride_b) = K;
  get<0>(stride_d) = N;
  cutlass::KernelHardwareInfo hardware;
  hardware.device_id = 0;
  cudaDeviceGetAttribute(&hardware.sm_count, cudaDevAttrMultiProcessorCount, 0);
  typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm,
                                     {M, N, K, 1},
                                     {(const Element*)a, stride_a, (const Element*)b, stride_b},
                                     {{1.0f, 0.0f}, nullptr, stride_d, (Element*)c, stride_d},
                                     hardware};
  Gemm gemm;
  void* workspace = nullptr;
  if (size_t bytes = Gemm::get_workspace_size(arguments)) cudaMalloc(&workspace, bytes);
  gemm.initialize(arguments, workspace, stream);
  gemm.run(stream);
}
