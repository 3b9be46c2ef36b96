// mma, wmma.mma, ldmatrix, stmatrix and movmatrix as pure functions over the operands of the lanes.
#include "sums.hpp"

namespace rt {

namespace {

// Rows of registers from the lanes, decoded: R x (W registers) values.
template <Format F, uint32_t R, uint32_t columns, class Get>
inline void gather(const Lanes& l, double* out, Get get) {
  constexpr uint32_t W = columns / per_register(F);
  typename RegisterOf<F>::type row[W < 4 ? 4 : W];
  for (uint32_t r = 0; r < R; r++) {
    for (uint32_t w = 0; w < W; w++) row[w] = get(l.lane[lane_of(r, w)])[register_of(r, w, R)];
    const auto* bytes = reinterpret_cast<const uint8_t*>(row);
    for (uint32_t at = 0; at < W * sizeof row[0]; at += 16) out += decode16<F>(bytes + at, out);
  }
}

// Not all lanes are there: nothing sensible can come out, and it must be seen.
template <class Lane, class Clear>
inline bool incomplete(const Lanes& l, Clear clear) {
  if (l.active == 0xffffffffu) return false;
  for (uint32_t rest = l.active; rest; rest &= rest - 1) clear(*static_cast<Lane*>(l.lane[__builtin_ctz(rest)]));
  return true;
}

}  // namespace

template <uint32_t M, uint32_t N, uint32_t K, Format D, Format A, Format B, bool saturate>
void mma(const Lanes& l) {
  using Lane = MmaLane<M, N, K, D, A, B>;
  if (incomplete<Lane>(l, [](Lane& lane) { memset(lane.c, 0xff, sizeof lane.c); })) return;
  double a[M * K], b_rows[N * K], b[K * N], c[M * N];
  gather<A, M, K>(l, a, [](void* lane) { return static_cast<Lane*>(lane)->a; });
  gather<B, N, K>(l, b_rows, [](void* lane) { return static_cast<Lane*>(lane)->b; });
  for (uint32_t n = 0; n < N; n++)
    for (uint32_t k = 0; k < K; k++) b[k * N + n] = b_rows[n * K + k];
  for (uint32_t m = 0; m < M; m++)
    for (uint32_t w = 0; w < N / 2; w++)
      unpack_pair<D>(static_cast<Lane*>(l.lane[lane_of(m, w)])->c, register_of(m, w, M), c + m * N + 2 * w);
  multiply_as<D, A, B>(a, b, c, M, N, K);
  for (uint32_t m = 0; m < M; m++)
    for (uint32_t w = 0; w < N / 2; w++)
      pack_pair<D>(static_cast<Lane*>(l.lane[lane_of(m, w)])->c, register_of(m, w, M), c + m * N + 2 * w, saturate);
}

#define RT_MMA(M, N, K, D, A, B) template void mma<M, N, K, Format::D, Format::A, Format::B, false>(const Lanes&);
#define RT_MMA_INTEGER(M, N, K, A, B)     \
  RT_MMA(M, N, K, s32, A, B)              \
  template void mma<M, N, K, Format::s32, Format::A, Format::B, true>(const Lanes&);
#define RT_MMA_FP16(M, N, K) RT_MMA(M, N, K, f16, f16, f16) RT_MMA(M, N, K, f32, f16, f16) RT_MMA(M, N, K, f32, bf16, bf16)
#define RT_MMA_BYTES(M, N, K)                                                            \
  RT_MMA_INTEGER(M, N, K, s8, s8) RT_MMA_INTEGER(M, N, K, s8, u8)                        \
  RT_MMA_INTEGER(M, N, K, u8, s8) RT_MMA_INTEGER(M, N, K, u8, u8)

RT_MMA_FP16(16, 8, 8)
RT_MMA_FP16(16, 8, 16)
RT_MMA(16, 8, 4, f32, tf32, tf32)
RT_MMA(16, 8, 8, f32, tf32, tf32)
RT_MMA(8, 8, 4, f64, f64, f64)
RT_MMA(16, 8, 4, f64, f64, f64)
RT_MMA(16, 8, 8, f64, f64, f64)
RT_MMA(16, 8, 16, f64, f64, f64)
RT_MMA_BYTES(16, 8, 16)
RT_MMA_BYTES(16, 8, 32)
RT_MMA(16, 8, 32, f32, e4m3, e4m3)
RT_MMA(16, 8, 32, f32, e4m3, e5m2)
RT_MMA(16, 8, 32, f32, e5m2, e4m3)
RT_MMA(16, 8, 32, f32, e5m2, e5m2)
// wmma
RT_MMA_FP16(16, 16, 16)
RT_MMA_FP16(32, 8, 16)
RT_MMA_FP16(8, 32, 16)
RT_MMA(16, 16, 8, f32, tf32, tf32)
RT_MMA_INTEGER(16, 16, 16, s8, s8)
RT_MMA_INTEGER(16, 16, 16, u8, u8)
RT_MMA_INTEGER(32, 8, 16, s8, s8)
RT_MMA_INTEGER(32, 8, 16, u8, u8)
RT_MMA_INTEGER(8, 32, 16, s8, s8)
RT_MMA_INTEGER(8, 32, 16, u8, u8)

// --- 8 x 8 matrices of 16-bit values: a lane holds two neighbours of row lane / 4 ----------------------

namespace {

MatrixLane& matrix_lane(const Lanes& l, uint32_t lane) { return *static_cast<MatrixLane*>(l.lane[lane]); }

using Matrix = uint16_t[8][8];

void to_lanes(const Lanes& l, uint32_t index, const Matrix& m, bool transposed) {
  for (uint32_t lane = 0; lane < 32; lane++) {
    const uint32_t row = lane / 4, column = lane % 4 * 2;
    const uint32_t low = transposed ? m[column][row] : m[row][column];
    const uint32_t high = transposed ? m[column + 1][row] : m[row][column + 1];
    matrix_lane(l, lane).d[index] = low | high << 16;
  }
}

void from_lanes(const Lanes& l, uint32_t index, Matrix& m, bool transposed) {
  for (uint32_t lane = 0; lane < 32; lane++) {
    const uint32_t row = lane / 4, column = lane % 4 * 2, value = matrix_lane(l, lane).d[index];
    (transposed ? m[column][row] : m[row][column]) = uint16_t(value);
    (transposed ? m[column + 1][row] : m[row][column + 1]) = uint16_t(value >> 16);
  }
}

bool no_matrix(const Lanes& l) {
  return incomplete<MatrixLane>(l, [](MatrixLane& lane) { memset(lane.d, 0xff, sizeof lane.d); });
}

}  // namespace

template <uint32_t count, bool transposed>
void ldmatrix(const Lanes& l) {
  if (no_matrix(l)) return;
  for (uint32_t index = 0; index < count; index++) {
    Matrix m;
    for (uint32_t row = 0; row < 8; row++) memcpy(m[row], matrix_lane(l, index * 8 + row).row, 16);
    to_lanes(l, index, m, transposed);
  }
}

template <uint32_t count, bool transposed>
void stmatrix(const Lanes& l) {
  if (no_matrix(l)) return;
  for (uint32_t index = 0; index < count; index++) {
    Matrix m;
    from_lanes(l, index, m, transposed);
    for (uint32_t row = 0; row < 8; row++) memcpy(matrix_lane(l, index * 8 + row).row, m[row], 16);
  }
}

void movmatrix(const Lanes& l) {
  if (no_matrix(l)) return;
  Matrix m;
  from_lanes(l, 0, m, false);
  to_lanes(l, 0, m, true);
}

#define RT_MATRIX(count)                                       \
  template void ldmatrix<count, false>(const Lanes&);          \
  template void ldmatrix<count, true>(const Lanes&);           \
  template void stmatrix<count, false>(const Lanes&);          \
  template void stmatrix<count, true>(const Lanes&);
RT_MATRIX(1)
RT_MATRIX(2)
RT_MATRIX(4)

void wmma_sync(const Lanes&) {}

}  // namespace rt
