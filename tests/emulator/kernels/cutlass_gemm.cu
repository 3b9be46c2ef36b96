// CUTLASS's GEMMs for sm_80 in one launch: parameters are made on the device instead of by the host's wrapper.
// C = A * B: A row-major (m x k), B column-major (k x n), C row-major.
#include <cutlass/bfloat16.h>
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm.h>
#include <cutlass/half.h>

template <class T, class Out, class Sum, class Tile, class Warp, class Instruction, int STAGES, class Operator>
struct Form {
  static constexpr int ALIGNMENT = cutlass::sizeof_bits<T>::value == 64 ? 1 : 128 / cutlass::sizeof_bits<T>::value;
  using Epilogue = cutlass::epilogue::thread::LinearCombination<Out, sizeof(Out) == 8 ? 1 : 16 / sizeof(Out), Sum, Sum>;
  using Gemm = cutlass::gemm::device::Gemm<T, cutlass::layout::RowMajor, T, cutlass::layout::ColumnMajor, Out,
                                           cutlass::layout::RowMajor, Sum, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, Tile,
                                           Warp, Instruction, Epilogue,
                                           cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, STAGES,
                                           ALIGNMENT, ALIGNMENT, false, Operator>;
  using Kernel = typename Gemm::GemmKernel;

  static __device__ void run(T* a, T* b, Out* c, int m, int n, int k) {
    extern __shared__ __align__(16) unsigned char memory[];
    const cutlass::gemm::GemmCoord problem(m, n, k), tiles((m + Tile::kM - 1) / Tile::kM, (n + Tile::kN - 1) / Tile::kN, 1);
    typename Kernel::Params params(problem, tiles, {a, k}, {b, k}, {c, n}, {c, n}, {Sum(1), Sum(0)}, nullptr, nullptr, nullptr, nullptr);
    Kernel kernel;
    kernel(params, *reinterpret_cast<typename Kernel::SharedStorage*>(memory));
  }
};

template <int M, int N, int K>
using Shape = cutlass::gemm::GemmShape<M, N, K>;
using Add = cutlass::arch::OpMultiplyAdd;

#define KERNEL(NAME, T, OUT, SUM, TILE, WARP, INSTRUCTION, STAGES, OPERATOR)                               \
  extern "C" __global__ void __launch_bounds__(128) NAME(T* a, T* b, OUT* c, int m, int n, int k) {        \
    Form<T, OUT, SUM, TILE, WARP, INSTRUCTION, STAGES, OPERATOR>::run(a, b, c, m, n, k);                   \
  }
#define S(...) Shape<__VA_ARGS__>
using Tile16 = Shape<128, 64, 32>;
using Warp16 = Shape<64, 32, 32>;
KERNEL(brain, cutlass::bfloat16_t, float, float, Tile16, Warp16, S(16, 8, 16), 3, Add)
KERNEL(halves, cutlass::half_t, cutlass::half_t, float, Tile16, Warp16, S(16, 8, 16), 4, Add)
using Tile32 = Shape<128, 64, 16>;
using Warp32 = Shape<64, 32, 16>;
KERNEL(tf32, float, float, float, Tile32, Warp32, S(16, 8, 8), 3, Add)
using Tile8 = Shape<128, 64, 64>;
using Warp8 = Shape<64, 32, 64>;
KERNEL(bytes, int8_t, int32_t, int32_t, Tile8, Warp8, S(16, 8, 32), 3, cutlass::arch::OpMultiplyAddSaturate)
using Tile64 = Shape<64, 64, 16>;
using Warp64 = Shape<32, 32, 16>;
KERNEL(doubles, double, double, double, Tile64, Warp64, S(8, 8, 4), 3, Add)
