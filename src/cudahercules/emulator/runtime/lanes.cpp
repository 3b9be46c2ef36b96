// What lanes of a warp compute together: pure functions over the operands of the lanes that are there.
#include <cmath>
#include <cstring>

#include "device.hpp"

namespace rt {

namespace {

template <class T, class F>
inline void each(const Lanes& l, F f) {
  for (uint32_t rest = l.active; rest; rest &= rest - 1) {
    const auto lane = uint32_t(__builtin_ctz(rest));
    f(lane, *static_cast<T*>(l.lane[lane]));
  }
}

// A source lane that is not there gives an undefined value on a GPU; a NaN pattern makes that visible.
constexpr uint32_t undefined_value = 0xffffffffu;

template <class Source>
inline void shuffle(const Lanes& l, Source source) {
  each<Shuffle>(l, [&](uint32_t lane, Shuffle& s) {
    const uint32_t clamp = s.c & 31, segment = s.c >> 8 & 31;
    const uint32_t most = (lane & segment) | (clamp & ~segment);
    const auto from = source(lane, s.b & 31, segment, clamp, most);
    s.p = from.inside;
    const uint32_t j = from.inside ? from.lane : lane;
    s.d = l.active >> j & 1 ? static_cast<Shuffle*>(l.lane[j])->a : undefined_value;
  });
}

struct From {
  uint32_t lane;
  bool inside;
};

template <class F>
inline void reduce(const Lanes& l, F f) {
  uint32_t value = 0;
  bool first = true;
  each<Reduce>(l, [&](uint32_t, Reduce& r) {
    value = first ? r.a : f(value, r.a);
    first = false;
  });
  each<Reduce>(l, [&](uint32_t, Reduce& r) { r.d = value; });
}

float as_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
uint32_t as_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

template <bool maximum, bool absolute, bool nan>
inline void reduce_float(const Lanes& l) {
  reduce(l, [](uint32_t a, uint32_t b) -> uint32_t {
    float x = as_float(a), y = as_float(b);
    if (absolute) x = std::fabs(x), y = std::fabs(y);
    if (std::isnan(x) || std::isnan(y)) {
      if (nan || (std::isnan(x) && std::isnan(y))) return 0x7fffffffu;
      return as_bits(std::isnan(x) ? y : x);
    }
    if (x == y) return as_bits(std::signbit(x) == maximum ? y : x);
    return as_bits((x < y) == maximum ? y : x);
  });
  if (absolute && l.active && !(l.active & (l.active - 1)))
    each<Reduce>(l, [](uint32_t, Reduce& r) { r.d = r.a & 0x7fffffffu; });
}

}  // namespace

void shuffle_up(const Lanes& l) {
  shuffle(l, [](uint32_t lane, uint32_t b, uint32_t, uint32_t, uint32_t most) {
    return From{lane - b, int32_t(lane - b) >= int32_t(most)};
  });
}
void shuffle_down(const Lanes& l) {
  shuffle(l, [](uint32_t lane, uint32_t b, uint32_t, uint32_t, uint32_t most) { return From{lane + b, lane + b <= most}; });
}
void shuffle_bfly(const Lanes& l) {
  shuffle(l, [](uint32_t lane, uint32_t b, uint32_t, uint32_t, uint32_t most) {
    return From{lane ^ b, (lane ^ b) <= most};
  });
}
void shuffle_idx(const Lanes& l) {
  shuffle(l, [](uint32_t lane, uint32_t b, uint32_t segment, uint32_t, uint32_t most) {
    const uint32_t j = (lane & segment) | (b & ~segment);
    return From{j, j <= most};
  });
}

namespace {
uint32_t ballot_of(const Lanes& l) {
  uint32_t ballot = 0;
  each<Vote>(l, [&](uint32_t lane, Vote& v) { ballot |= uint32_t(v.a) << lane; });
  return ballot;
}
void answer(const Lanes& l, uint32_t d) {
  each<Vote>(l, [&](uint32_t, Vote& v) { v.d = d; });
}
}  // namespace

void vote_ballot(const Lanes& l) { answer(l, ballot_of(l)); }
void vote_any(const Lanes& l) { answer(l, ballot_of(l) != 0); }
void vote_all(const Lanes& l) { answer(l, ballot_of(l) == l.active); }
void vote_uni(const Lanes& l) {
  const uint32_t ballot = ballot_of(l);
  answer(l, ballot == 0 || ballot == l.active);
}

void match_any(const Lanes& l) {
  each<Match>(l, [&](uint32_t, Match& m) {
    m.d = 0;
    each<Match>(l, [&](uint32_t other, Match& o) { m.d |= uint32_t(o.a == m.a) << other; });
  });
}
void match_all(const Lanes& l) {
  if (!l.active) return;
  const uint64_t first = static_cast<Match*>(l.lane[__builtin_ctz(l.active)])->a;
  bool same = true;
  each<Match>(l, [&](uint32_t, Match& m) { same &= m.a == first; });
  each<Match>(l, [&](uint32_t, Match& m) {
    m.p = same;
    m.d = same ? l.active : 0;
  });
}

void redux_add(const Lanes& l) {
  reduce(l, [](uint32_t a, uint32_t b) { return a + b; });
}
void redux_min_u32(const Lanes& l) {
  reduce(l, [](uint32_t a, uint32_t b) { return a < b ? a : b; });
}
void redux_max_u32(const Lanes& l) {
  reduce(l, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
}
void redux_min_s32(const Lanes& l) {
  reduce(l, [](uint32_t a, uint32_t b) { return int32_t(a) < int32_t(b) ? a : b; });
}
void redux_max_s32(const Lanes& l) {
  reduce(l, [](uint32_t a, uint32_t b) { return int32_t(a) > int32_t(b) ? a : b; });
}
void redux_and(const Lanes& l) {
  reduce(l, [](uint32_t a, uint32_t b) { return a & b; });
}
void redux_or(const Lanes& l) {
  reduce(l, [](uint32_t a, uint32_t b) { return a | b; });
}
void redux_xor(const Lanes& l) {
  reduce(l, [](uint32_t a, uint32_t b) { return a ^ b; });
}
void redux_min_f32(const Lanes& l) { reduce_float<false, false, false>(l); }
void redux_max_f32(const Lanes& l) { reduce_float<true, false, false>(l); }
void redux_min_nan_f32(const Lanes& l) { reduce_float<false, false, true>(l); }
void redux_max_nan_f32(const Lanes& l) { reduce_float<true, false, true>(l); }
void redux_min_abs_f32(const Lanes& l) { reduce_float<false, true, false>(l); }
void redux_max_abs_f32(const Lanes& l) { reduce_float<true, true, false>(l); }
void redux_min_abs_nan_f32(const Lanes& l) { reduce_float<false, true, true>(l); }
void redux_max_abs_nan_f32(const Lanes& l) { reduce_float<true, true, true>(l); }

void elect(const Lanes& l) {
  if (!l.active) return;
  const auto leader = uint32_t(__builtin_ctz(l.active));
  each<Match>(l, [&](uint32_t lane, Match& m) {
    m.d = leader;
    m.p = lane == leader;
  });
}
void warp_sync(const Lanes&) {}

}  // namespace rt
