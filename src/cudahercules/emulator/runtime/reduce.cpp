// Reductions of bulk copies: element by element, each atomic.
#include "atomics.hpp"
#include "tma.hpp"

namespace rt {

namespace {

using Element = void (*)(uint8_t* to, const uint8_t* from);

template <class T>
Element integer_reduction(Reduction r, bool is_unsigned) {
  switch (r) {
    case Reduction::add:
      return [](uint8_t* to, const uint8_t* from) { atomic_add<true, T>(to, load<T>(from)); };
    case Reduction::min:
      return [](uint8_t* to, const uint8_t* from) { atomic_min<true, T>(to, load<T>(from)); };
    case Reduction::max:
      return [](uint8_t* to, const uint8_t* from) { atomic_max<true, T>(to, load<T>(from)); };
    case Reduction::inc:
      if (!is_unsigned) return nullptr;
      return [](uint8_t* to, const uint8_t* from) { atomic_inc<true, T>(to, load<T>(from)); };
    case Reduction::dec:
      if (!is_unsigned) return nullptr;
      return [](uint8_t* to, const uint8_t* from) { atomic_dec<true, T>(to, load<T>(from)); };
    case Reduction::band:
      return [](uint8_t* to, const uint8_t* from) { atomic_and<true, T>(to, load<T>(from)); };
    case Reduction::bor:
      return [](uint8_t* to, const uint8_t* from) { atomic_or<true, T>(to, load<T>(from)); };
    case Reduction::bxor:
      return [](uint8_t* to, const uint8_t* from) { atomic_xor<true, T>(to, load<T>(from)); };
    default:
      return nullptr;
  }
}

template <class H>
Element half_reduction(Reduction r) {
  switch (r) {
    case Reduction::add:
      return [](uint8_t* to, const uint8_t* from) { atomic_half<true, H, HalfOp::add>(to, load<uint16_t>(from)); };
    case Reduction::min:
      return [](uint8_t* to, const uint8_t* from) { atomic_half<true, H, HalfOp::min>(to, load<uint16_t>(from)); };
    case Reduction::max:
      return [](uint8_t* to, const uint8_t* from) { atomic_half<true, H, HalfOp::max>(to, load<uint16_t>(from)); };
    default:
      return nullptr;
  }
}

struct Kind {
  Element element;
  uint32_t size;
};

Kind reduction_kind(Reduction r, Number n) {
  switch (n) {
    case Number::u32:
      return {integer_reduction<uint32_t>(r, true), 4};
    case Number::s32:
      return {integer_reduction<int32_t>(r, false), 4};
    case Number::u64:
      return {integer_reduction<uint64_t>(r, false), 8};
    case Number::s64:
      return {integer_reduction<int64_t>(r, false), 8};
    case Number::f16:
      return {half_reduction<ptx::Half>(r), 2};
    case Number::bf16:
      return {half_reduction<ptx::Brain>(r), 2};
    case Number::f32:
      if (r != Reduction::add) return {nullptr, 4};
      return {[](uint8_t* to, const uint8_t* from) { atomic_add_f32<true, false>(to, load<float>(from)); }, 4};
    case Number::f32_ftz:
      if (r != Reduction::add) return {nullptr, 4};
      return {[](uint8_t* to, const uint8_t* from) { atomic_add_f32<true, true>(to, load<float>(from)); }, 4};
    default:
      if (r != Reduction::add) return {nullptr, 8};
      return {[](uint8_t* to, const uint8_t* from) { atomic_add_f64<true>(to, load<double>(from)); }, 8};
  }
}

}  // namespace

bool reduce_bytes(uint8_t* to, const uint8_t* from, uint32_t bytes, Reduction reduction, Number number) {
  const Kind kind = reduction_kind(reduction, number);
  if (!kind.element) return false;
  for (uint32_t i = 0; i < bytes; i += kind.size) kind.element(to + i, from + i);
  return true;
}

}  // namespace rt
