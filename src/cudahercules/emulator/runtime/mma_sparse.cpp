// mma.sp: A holds half of each row's elements, and metadata says which ones.
#include "sums.hpp"

namespace rt {

namespace {

constexpr uint32_t rows = 16, columns = 8, most_k = 128, most_words = 16;

template <Format F>
void decode_whole(const uint32_t* words, uint32_t count, double* out) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(words);
  for (uint32_t at = 0; at < count * 4; at += 16) out += decode16<F>(bytes + at, out);
}

void decode_nibbles(const uint32_t* words, uint32_t count, bool is_signed, double* out) {
  for (uint32_t i = 0; i < count * 8; i++) {
    const int value = int(words[i / 8] >> i % 8 * 4 & 15);
    out[i] = is_signed && value > 7 ? value - 16 : value;
  }
}

void decode(Format f, const uint32_t* words, uint32_t count, double* out) {
  switch (f) {
    case Format::f16: return decode_whole<Format::f16>(words, count, out);
    case Format::bf16: return decode_whole<Format::bf16>(words, count, out);
    case Format::tf32: return decode_whole<Format::tf32>(words, count, out);
    case Format::s8: return decode_whole<Format::s8>(words, count, out);
    case Format::u8: return decode_whole<Format::u8>(words, count, out);
    case Format::e4m3: return decode_whole<Format::e4m3>(words, count, out);
    case Format::e5m2: return decode_whole<Format::e5m2>(words, count, out);
    default: return decode_nibbles(words, count, f == Format::s4, out);
  }
}

uint32_t width_of(Format f) { return f == Format::s4 || f == Format::u4 ? 4 : 8 * size_of(f); }

// The four bits for chunk `c` of row `r`. Eight chunks a row lie with two lanes of each four, row r and r + 8
// in the halves of a register; sixteen chunks with all four lanes, which take turns in rows.
uint32_t indices_of(const SparseLane* const* lanes, const SparseForm& form, uint32_t r, uint32_t c, uint32_t chunks) {
  if (chunks == 8) return lanes[r % 8 * 4 + 2 * form.selector + c / 4]->e >> (r / 8 * 16 + c % 4 * 4) & 15;
  return lanes[r % 8 * 4 + c / 8 * 2 + r / 8]->e >> c % 8 * 4 & 15;
}

// A row of A where the metadata puts its elements. Two equal indices are undefined in PTX.
template <class T>
void expand(Format f, uint32_t chunk, uint32_t indices, const T* packed, T* dense) {
  const uint32_t first = indices & 3, second = indices >> 2;
  if (f == Format::tf32) {  // one of two: 4 is the first, 14 the second
    dense[2 * chunk + first / 2] = packed[chunk];
  } else if (width_of(f) == 4) {  // four of eight, as pairs
    for (uint32_t i = 0; i < 2; i++) {
      dense[8 * chunk + 2 * first + i] = packed[4 * chunk + i];
      dense[8 * chunk + 2 * second + i] = packed[4 * chunk + 2 + i];
    }
  } else {  // two of four
    dense[4 * chunk + first] = packed[2 * chunk];
    dense[4 * chunk + second] = packed[2 * chunk + 1];
  }
}

void accumulators(Format d, uint32_t* registers, uint32_t pair, double* values, bool store, bool saturate) {
  if (d == Format::f16)
    store ? pack_pair<Format::f16>(registers, pair, values, false) : unpack_pair<Format::f16>(registers, pair, values);
  else if (d == Format::s32)
    store ? pack_pair<Format::s32>(registers, pair, values, saturate) : unpack_pair<Format::s32>(registers, pair, values);
  else
    store ? pack_pair<Format::f32>(registers, pair, values, false) : unpack_pair<Format::f32>(registers, pair, values);
}

}  // namespace

void mma_sparse(const Lanes& l) {
  SparseLane* lanes[32];
  for (uint32_t rest = l.active; rest; rest &= rest - 1) {
    SparseLane* lane = static_cast<SparseLane*>(l.lane[__builtin_ctz(rest)]);
    lanes[__builtin_ctz(rest)] = lane;
    if (l.active != 0xffffffffu) memset(lane->c, 0xff, sizeof lane->c);  // nothing sensible can come out
  }
  if (l.active != 0xffffffffu) return;
  const SparseForm form = lanes[0]->form;
  const uint32_t k = form.k, a_words = k / 2 * width_of(form.a) / 32, b_words = k * width_of(form.b) / 32;
  const uint32_t chunks = form.a == Format::tf32 ? k / 2 : width_of(form.a) == 4 ? k / 8 : k / 4;
  static thread_local double a[rows * most_k], b[most_k * columns];  // too much for a fiber's stack
  static thread_local uint8_t there[rows * most_k];
  uint32_t words[most_words];
  double values[most_k];
  uint8_t ones[most_k];
  memset(a, 0, sizeof a);
  memset(there, 0, sizeof there);
  memset(ones, 1, sizeof ones);
  for (uint32_t r = 0; r < rows; r++) {
    for (uint32_t w = 0; w < a_words; w++) words[w] = lanes[lane_of(r, w)]->a[register_of(r, w, rows)];
    decode(form.a, words, a_words, values);
    for (uint32_t c = 0; c < chunks; c++) {
      const uint32_t indices = indices_of(lanes, form, r, c, chunks);
      expand(form.a, c, indices, values, a + r * k);
      expand(form.a, c, indices, ones, there + r * k);
    }
  }
  for (uint32_t n = 0; n < columns; n++) {
    for (uint32_t w = 0; w < b_words; w++) words[w] = lanes[lane_of(n, w)]->b[register_of(n, w, columns)];
    decode(form.b, words, b_words, values);
    for (uint32_t i = 0; i < k; i++) b[i * columns + n] = values[i];
  }
  double c[rows * columns];
  const auto move = [&](bool store) {
    for (uint32_t r = 0; r < rows; r++)
      for (uint32_t w = 0; w < columns / 2; w++)
        accumulators(form.d, lanes[lane_of(r, w)]->c, register_of(r, w, rows), c + r * columns + 2 * w, store, form.saturate);
  };
  move(false);
  if (form.d == Format::s32) multiply(a, b, c, rows, columns, k);
  else if (size_of(form.a) == 1) multiply_bytes<8>(a, b, c, rows, columns, k, there);
  else multiply_aligned(exact_products(form.d, form.a, form.b), a, b, c, rows, columns, k, there);
  move(true);
}

}  // namespace rt
