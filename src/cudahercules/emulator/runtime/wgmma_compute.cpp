// The product of one wgmma, and where its operands lie in shared memory.
//
// A descriptor names a matrix by the address of its first 16-byte unit and two strides; how units follow each
// other is the canonical layout of the PTX manual. `row` counts along m or n, `unit` along the other way.
//   K-major, a row is 32 bytes along k, two units:
//     no swizzle     row % 8 * 16 + row / 8 * stride + unit * leading
//     W-byte swizzle row % 8 * W  + row / 8 * stride + unit * 16
//   MN-major (16-bit types only), a unit is 8 neighbours along m or n at one k:
//     no swizzle     unit * stride                             + k % 8 * 16 + k / 8 * leading
//     W-byte swizzle unit % (W/16) * 16 + unit / (W/16) * leading + k % 8 * W + k / 8 * stride
// The swizzle works on the address bits, less the base offset: the pattern then begins at that multiple of 128.
#include "swizzle.hpp"
#include "sums.hpp"
#include "wgmma.hpp"

namespace rt {

namespace {

constexpr uint32_t warpgroup_rows = 64, warp_rows = 16, row_bytes = 32, most_columns = 256, most_depth = 32;

class Descriptor {
 public:
  explicit Descriptor(uint64_t bits)
      : start_(field(bits, 0)), leading_(field(bits, 16)), stride_(field(bits, 32)), base_(uint32_t(bits >> 49 & 7)) {
    constexpr Swizzle modes[] = {Swizzle::none, Swizzle::bytes128, Swizzle::bytes64, Swizzle::bytes32};
    swizzle_ = modes[bits >> 62];
    width_ = 16u << uint32_t(swizzle_);
  }

  uint32_t along_k(uint32_t row, uint32_t unit) const {
    const uint32_t step = swizzle_ == Swizzle::none ? leading_ : 16;
    return place(row % 8 * width_ + row / 8 * stride_ + unit * step);
  }

  uint32_t across_k(uint32_t k, uint32_t unit) const {
    if (swizzle_ == Swizzle::none) return place(unit * stride_ + k % 8 * 16 + k / 8 * leading_);
    const uint32_t units = width_ / 16;
    return place(unit % units * 16 + unit / units * leading_ + k % 8 * width_ + k / 8 * stride_);
  }

 private:
  static uint32_t field(uint64_t bits, uint32_t at) { return uint32_t(bits >> at & 0x3fff) << 4; }

  // Window addresses have 18 bits here.
  uint32_t place(uint32_t offset) const {
    const uint32_t address = start_ + offset, base = base_ * 128;
    return (swizzled(address - base, swizzle_) + base) & 0x3ffff;
  }

  uint32_t start_, leading_, stride_, base_, width_;
  Swizzle swizzle_;
};

struct Shared {
  const uint8_t* window;
  uint32_t begin, end;
  uint32_t outside = 0;

  const uint8_t* at(uint32_t address) {
    static const uint8_t nothing[16] = {};
    if (address >= begin && address + 16 <= end) return window + address;
    if (!outside) outside = address;
    return nothing;
  }
};

// Buffers of one product; a worker computes one at a time.
struct Buffers {
  double a[warpgroup_rows * most_depth], b[most_depth * most_columns], c[warp_rows * most_columns];
};
thread_local Buffers buffers;

// `out(row, k, value)` for all values of a matrix with `rows` rows.
template <Format F, class Out>
void read_matrix(const Descriptor& d, bool transposed, uint32_t rows, Shared& shared, Out out) {
  double values[16];
  if constexpr (size_of(F) == 2)
    if (transposed) {
      for (uint32_t k = 0; k < row_bytes / size_of(F); k++)
        for (uint32_t unit = 0; unit < rows / 8; unit++) {
          decode16<F>(shared.at(d.across_k(k, unit)), values);
          for (uint32_t i = 0; i < 8; i++) out(unit * 8 + i, k, values[i]);
        }
      return;
    }
  for (uint32_t row = 0; row < rows; row++)
    for (uint32_t unit = 0; unit < 2; unit++) {
      const uint32_t count = decode16<F>(shared.at(d.along_k(row, unit)), values);
      for (uint32_t i = 0; i < count; i++) out(row, unit * count + i, values[i]);
    }
}

template <class Function>
void with_format(Format f, Function function) {
  switch (f) {
    case Format::f16:
      return function.template operator()<Format::f16>();
    case Format::bf16:
      return function.template operator()<Format::bf16>();
    case Format::tf32:
      return function.template operator()<Format::tf32>();
    case Format::s8:
      return function.template operator()<Format::s8>();
    case Format::u8:
      return function.template operator()<Format::u8>();
    case Format::e4m3:
      return function.template operator()<Format::e4m3>();
    default:
      return function.template operator()<Format::e5m2>();
  }
}

struct ReadB {
  const WgmmaForm& form;
  Descriptor descriptor;
  Shared& shared;
  template <Format F>
  void operator()() {
    const double sign = form.b_negated ? -1 : 1;
    const uint32_t n = form.columns;
    read_matrix<F>(descriptor, form.b_transposed, n, shared,
                   [&](uint32_t row, uint32_t k, double value) { buffers.b[k * n + row] = sign * value; });
  }
};

struct ReadA {
  const WgmmaForm& form;
  Descriptor descriptor;
  Shared& shared;
  template <Format F>
  void operator()() {
    const double sign = form.a_negated ? -1 : 1;
    constexpr uint32_t depth = row_bytes / size_of(F);
    read_matrix<F>(descriptor, form.a_transposed, warpgroup_rows, shared,
                   [&](uint32_t row, uint32_t k, double value) { buffers.a[row * depth + k] = sign * value; });
  }
};

struct TakeA {
  const WgmmaForm& form;
  const WgmmaThread* threads;
  template <Format F>
  void operator()() {
    constexpr uint32_t depth = row_bytes / size_of(F), words = row_bytes / 4;
    const double sign = form.a_negated ? -1 : 1;
    for (uint32_t row = 0; row < warpgroup_rows; row++) {
      uint32_t line[words];
      const uint32_t r = row % warp_rows;
      for (uint32_t w = 0; w < words; w++)
        line[w] = threads[row / warp_rows * 32 + lane_of(r, w)].a[register_of(r, w, warp_rows)];
      double* out = buffers.a + row * depth;
      const uint32_t count = decode16<F>(reinterpret_cast<const uint8_t*>(line), out);
      decode16<F>(reinterpret_cast<const uint8_t*>(line) + 16, out + count);
      if (form.a_negated)
        for (uint32_t k = 0; k < depth; k++) out[k] *= sign;
    }
  }
};

// Accumulators of one warp to or from the buffer. Registers are reached through the thread's table.
template <Format F, class Function>
void each_pair(uint32_t columns, WgmmaThread* threads, Function function) {
  for (uint32_t lane = 0; lane < 32; lane++) {
    uint32_t* const values = threads[lane].values;
    const uint16_t* const index = threads[lane].index;
    for (uint32_t w = lane % 4; w < columns / 2; w += 4)
      for (uint32_t r = lane / 4; r < warp_rows; r += 8) {
        const uint32_t pair = register_of(r, w, warp_rows);
        double* const at = buffers.c + r * columns + 2 * w;
        if constexpr (F == Format::f16)
          function(&values[index[pair]], &values[index[pair]], at);
        else
          function(&values[index[2 * pair]], &values[index[2 * pair + 1]], at);
      }
  }
}

template <Format F>
void product(const WgmmaForm& form, bool keep, WgmmaThread* threads) {
  const uint32_t columns = form.columns, depth = row_bytes / size_of(form.a);
  const SumRule rule = (size_of(form.a) == 1 ? byte_products : exact_products)(form.d, form.a, form.b);
  for (uint32_t warp = 0; warp < 4; warp++) {
    if (keep)
      each_pair<F>(columns, threads + warp * 32, [](uint32_t* low, uint32_t* high, double* at) {
        const uint32_t registers[2] = {*low, *high};
        unpack_pair<F>(registers, 0, at);
      });
    else
      memset(buffers.c, 0, warp_rows * columns * sizeof(double));
    const double* const a = buffers.a + warp * warp_rows * depth;
    if constexpr (F == Format::s32) multiply(a, buffers.b, buffers.c, warp_rows, columns, depth);
    else multiply_aligned(rule, a, buffers.b, buffers.c, warp_rows, columns, depth);
    each_pair<F>(columns, threads + warp * 32, [&](uint32_t* low, uint32_t* high, double* at) {
      uint32_t registers[2];
      pack_pair<F>(registers, 0, at, form.saturate);
      *low = registers[0];
      if constexpr (F != Format::f16) *high = registers[1];
    });
  }
}

}  // namespace

void wgmma_footprint(const WgmmaForm& form, const WgmmaOperands& operands, void (*f)(void*, uint32_t), void* context) {
  const auto matrix = [&](uint64_t bits, bool transposed, Format format, uint32_t rows) {
    const Descriptor d(bits);
    if (transposed && size_of(format) == 2) {
      for (uint32_t k = 0; k < row_bytes / 2; k++)
        for (uint32_t unit = 0; unit < rows / 8; unit++) f(context, d.across_k(k, unit));
      return;
    }
    for (uint32_t row = 0; row < rows; row++)
      for (uint32_t unit = 0; unit < 2; unit++) f(context, d.along_k(row, unit));
  };
  if (!form.a_in_registers) matrix(operands.a, form.a_transposed, form.a, warpgroup_rows);
  matrix(operands.b, form.b_transposed, form.b, form.columns);
}

uint32_t wgmma_compute(const WgmmaForm& form, const WgmmaOperands& operands, WgmmaThread* threads, const uint8_t* window,
                       uint32_t begin, uint32_t end) {
  Shared shared{window, begin, end};
  with_format(form.b, ReadB{form, Descriptor(operands.b), shared});
  if (form.a_in_registers)
    with_format(form.a, TakeA{form, threads});
  else
    with_format(form.a, ReadA{form, Descriptor(operands.a), shared});
  if (shared.outside) return shared.outside;
  if (form.d == Format::f16) product<Format::f16>(form, operands.keep, threads);
  else if (form.d == Format::s32) product<Format::s32>(form, operands.keep, threads);
  else product<Format::f32>(form, operands.keep, threads);
  return 0;
}

}  // namespace rt
