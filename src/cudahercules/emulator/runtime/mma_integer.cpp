// mma and wmma.mma of 4-bit integers and of single bits, and of bytes in the 8 x 8 x 16 form.
#include "tile.hpp"

namespace rt {

namespace {

// Element `index` of a row of packed elements: an integer, or (one bit wide) a bit.
inline int32_t element(const uint32_t* row, uint32_t index, uint32_t width, bool is_signed) {
  const uint32_t per = 32 / width, value = row[index / per] >> index % per * width & ((1u << width) - 1);
  return is_signed && value >> (width - 1) ? int32_t(value) - (1 << width) : int32_t(value);
}

// Row `r` of a matrix with `rows` rows, put together from the lanes' registers at `get(lane)`.
template <class Get>
inline void row_of(const Lanes& l, uint32_t r, uint32_t rows, uint32_t words, Get get, uint32_t* out) {
  for (uint32_t w = 0; w < words; w++) out[w] = get(lane_of(r, w))[register_of(r, w, rows)];
}

}  // namespace

void mma_integer(const Lanes& l) {
  const auto lane = [&](uint32_t i) -> IntegerLane& { return *static_cast<IntegerLane*>(l.lane[i]); };
  if (l.active != 0xffffffffu) {  // nothing sensible can come out, and it must be seen
    for (uint32_t rest = l.active; rest; rest &= rest - 1) memset(lane(uint32_t(__builtin_ctz(rest))).c, 0xff, sizeof lane(0).c);
    return;
  }
  constexpr uint32_t most_words = 8, columns = 8;
  const IntegerForm form = lane(0).form;
  const uint32_t words = form.k * form.width / 32;
  uint32_t b[columns][most_words];
  for (uint32_t n = 0; n < columns; n++) row_of(l, n, columns, words, [&](uint32_t i) { return lane(i).b; }, b[n]);
  for (uint32_t m = 0; m < form.m; m++) {
    uint32_t a[most_words];
    row_of(l, m, form.m, words, [&](uint32_t i) { return lane(i).a; }, a);
    for (uint32_t n = 0; n < columns; n++) {
      uint32_t& at = lane(lane_of(m, n / 2)).c[2 * register_of(m, n / 2, form.m) + n % 2];
      int64_t sum = int32_t(at);
      if (form.width == 1)
        for (uint32_t w = 0; w < words; w++) sum += __builtin_popcount(form.exclusive ? a[w] ^ b[n][w] : a[w] & b[n][w]);
      else
        for (uint32_t k = 0; k < form.k; k++)
          sum += element(a, k, form.width, form.a_signed) * element(b[n], k, form.width, form.b_signed);
      at = integer_of(double(sum), form.saturate);
    }
  }
}

}  // namespace rt
