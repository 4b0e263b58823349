// The loop over a stretch of elements for a formula with a value and a mask. Included inside of a source that
// goes through foreach_target.h, after vector-inl.h; not a public header. No pragma once for that reason.

#if defined(FQ_STRETCH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_STRETCH_INL_H
#undef FQ_STRETCH_INL_H
#else
#define FQ_STRETCH_INL_H
#endif

#include <algorithm>
#include <bit>

#include <hwy/cache_control.h>

#include "fakequant/core/backend/cpu/vector/cache.h"
#include "fakequant/reference/kernels/cpu/fake_quant_kernels.h"
//
#include "fakequant/core/backend/cpu/vector/groups-inl.h"
//
#include "fakequant/core/backend/cpu/vector/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

using cpu::Stretch;

template <class T>
bool vector_aligned(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % (hn::Lanes(FloatTag()) * sizeof(T)) == 0;
}

/// step(in, out, i) -> mask for the last elements, fewer than a group, through padded buffers.
template <class T, class Step>
void map_rest(const T* x, T* y, std::uint8_t* mask, std::int64_t begin, std::int64_t count, Step&& step) {
  constexpr std::size_t most = std::max<std::size_t>(HWY_MAX_BYTES / sizeof(float), 8);
  T in[most] = {}, out[most];
  std::uint8_t bits[most / 8 + 8] = {};
  const std::int64_t rest = count - begin;
  std::copy_n(x + begin, rest, in);
  visit_groups(group(), bits,
               [&](std::int64_t i) HWY_ATTR { return step(in + i, out + i, begin + i, false); });
  std::copy_n(out, rest, y + begin);
  if (mask == nullptr) return;
  if (rest % 8 != 0) bits[rest / 8] = static_cast<std::uint8_t>(bits[rest / 8] & ((1u << rest % 8) - 1));
  std::copy_n(bits, (rest + 7) / 8, mask + begin / 8);
}

/// y[i] = formula.value(x[i], i), mask[i] = formula.mask(x[i], i). With `ahead`, y is written past the caches
/// and x is prefetched that number of bytes ahead.
template <class T, class Formula>
void map_elements(const T* x, T* y, std::uint8_t* mask, std::int64_t count, std::int64_t ahead,
                  const Formula& formula) {
  const auto step = [&](const T* in, T* out, std::int64_t i, bool streamed) HWY_ATTR {
    const FloatVector v = load(in);
    store(formula.value(v, i), out, streamed);
    return formula.mask(v, i);
  };
  std::int64_t done = 0;
  if (ahead > 0)
    done = visit_groups(count, mask, [&](std::int64_t i) HWY_ATTR {
      hwy::Prefetch(reinterpret_cast<const char*>(x + i) + ahead);
      return step(x + i, y + i, i, true);
    });
  else
    done = visit_groups(count, mask, [&](std::int64_t i) HWY_ATTR {
      cpu::fetch_ahead(x + i);
      cpu::fetch_ahead(y + i);
      return step(x + i, y + i, i, false);
    });
  if (done < count) map_rest(x, y, mask, done, count, step);
}

/// A parameter of all elements, one for each, and one for every 2^shift.
struct Shared {
  Shared(const float* p, int) : value(hn::Set(FloatTag(), *p)) {}
  FloatVector at(std::int64_t) const { return value; }
  FloatVector value;
};
struct Each {
  Each(const float* p, int) : values(p) {}
  FloatVector at(std::int64_t i) const { return hn::LoadU(FloatTag(), values + i); }
  const float* values;
};
struct Blocked {
  Blocked(const float* p, int bits) : values(p), shift(bits) {}
  FloatVector at(std::int64_t i) const { return hn::Set(FloatTag(), values[i >> shift]); }
  const float* values;
  int shift;
};
/// Start of a formula's parameters in their columns.
struct From {
  std::int64_t at;
  int shift = 0;
};

/// `rows.template make<P>(from)`: the formula with parameters of kind P.
template <class T, class Rows>
void map_stretch(const Stretch& s, const Rows& rows) {
  const T* x = static_cast<const T*>(s.x);
  T* y = static_cast<T*>(s.y);
  const std::int64_t ahead = s.beyond_cache && vector_aligned(y) ? s.ahead : 0;
  const auto part = [&](std::int64_t i, std::int64_t most, const auto& formula) HWY_ATTR {
    map_elements(x + i, y + i, s.mask == nullptr ? nullptr : s.mask + i / 8, std::min(most, s.count - i),
                 ahead, formula);
  };
  if (s.shared == 0) {
    const std::int64_t period = s.period > 0 ? s.period : std::max<std::int64_t>(s.count, 1);
    for (std::int64_t i = 0; i < s.count; i += period) part(i, period, rows.template make<Each>(From{0}));
    return;
  }
  const auto length = static_cast<std::uint64_t>(s.shared);
  const bool blocked =
      s.shared >= static_cast<std::int64_t>(hn::Lanes(FloatTag())) && std::has_single_bit(length);
  if (blocked && s.shared < s.count)
    return part(0, s.count, rows.template make<Blocked>(From{0, std::countr_zero(length)}));
  for (std::int64_t i = 0, k = 0; i < s.count; i += s.shared, ++k)
    part(i, s.shared, rows.template make<Shared>(From{k}));
}

template <class Rows>
void map_stretch(const Stretch& s, const Rows& rows) {
  switch (s.dtype) {
    case DType::f16:
      return map_stretch<float16>(s, rows);
    case DType::bf16:
      return map_stretch<bfloat16>(s, rows);
    default:
      return map_stretch<float>(s, rows);
  }
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
