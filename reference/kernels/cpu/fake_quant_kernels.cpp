#include "fakequant/reference/kernels/cpu/fake_quant_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/reference/kernels/cpu/fake_quant_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#include "fakequant/reference/kernels/cpu/stretch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

using cpu::E4m3Rows;
using cpu::IntegerCast;
using cpu::IntegerRows;

// P says how an element finds its parameter: Shared, Each or Blocked of stretch-inl.h. Without `divide`,
// codes are divided by the inverse with a correction (divide_code), which has the bits of the division.
template <class P, bool divide>
struct IntegerFormula {
  P scale, divisor, inverse, bound;
  FloatVector lower, upper;

  FloatVector value(FloatVector x, std::int64_t i) const {
    if constexpr (divide) return modelopt_fake_quant(x, scale.at(i), divisor.at(i), lower, upper);
    return divide_code(modelopt_code(x, scale.at(i), lower, upper), divisor.at(i), inverse.at(i));
  }
  FloatMask mask(FloatVector x, std::int64_t i) const { return modelopt_mask(x, bound.at(i)); }
};

// Makes the formula of a stretch from the columns of its parameters.
template <bool divide>
struct IntegerFormulas {
  const IntegerRows& rows;

  template <class P>
  IntegerFormula<P, divide> make(From from) const {
    const FloatTag d;
    const auto p = [&](const float* column) { return P(column + from.at, from.shift); };
    const auto& [scale, divisor, inverse, bound] = rows.columns;
    return {p(scale), p(divisor), p(inverse), p(bound), hn::Set(d, rows.lower), hn::Set(d, rows.upper)};
  }
};

template <class P>
struct E4m3Formula {
  P scale, inverse, bound;

  FloatVector value(FloatVector x, std::int64_t i) const {
    return modelopt_scaled_e4m3(x, scale.at(i), inverse.at(i));
  }
  FloatMask mask(FloatVector x, std::int64_t i) const { return modelopt_mask(x, bound.at(i)); }
};

// Makes the formula of a stretch; codes are multiplied by the inverse and never divided (golden/README).
struct E4m3Formulas {
  const E4m3Rows& rows;

  template <class P>
  E4m3Formula<P> make(From from) const {
    const auto p = [&](const float* column) { return P(column + from.at, from.shift); };
    return {p(rows.columns.scale), p(rows.columns.inverse), p(rows.columns.bound)};
  }
};

struct CastFormula {
  FloatVector lower, upper;

  FloatVector value(FloatVector x, std::int64_t) const { return modelopt_int_cast(x, lower, upper); }
  FloatMask mask(FloatVector x, std::int64_t) const { return mask_closed(x, lower, upper); }
};

struct CastFormulas {
  const IntegerCast& cast;

  template <class P>
  CastFormula make(From) const {
    return {hn::Set(FloatTag(), cast.lower), hn::Set(FloatTag(), cast.upper)};
  }
};

std::int64_t VectorGroup() { return group(); }

bool MakeIntegerRows(const float* amax, std::int64_t count, float bound, bool guard, float* scale,
                     float* divisor, float* inverse) {
  const FloatTag d;
  const auto upper = hn::Set(d, bound), one = hn::Set(d, 1.0f);
  // divide_code needs a fused multiply-add; targets without it always divide.
  bool exact = kFused;
  // Whole vectors: the arrays are padded to vector groups.
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto a = hn::LoadU(d, amax + i), s = modelopt_scale(a, upper, guard);
    const auto by = modelopt_divisor(a, s, guard);
    exact = exact && hn::AllTrue(d, divides_exactly(by));
    hn::StoreU(s, d, scale + i);
    hn::StoreU(by, d, divisor + i);
    hn::StoreU(div_(one, by), d, inverse + i);
  }
  return !exact;
}

void MakeE4m3Rows(const float* amax, std::int64_t count, float* scale, float* inverse) {
  const FloatTag d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto s = modelopt_e4m3_scale(hn::LoadU(d, amax + i));
    hn::StoreU(s, d, scale + i);
    hn::StoreU(div_(constant_(s, 1.0f), s), d, inverse + i);
  }
}

// The branch is outside of the loop, so that each loop has one formula.
void FakeQuantInteger(const Stretch& stretch, const IntegerRows& rows) {
  if (rows.divide) return map_stretch(stretch, IntegerFormulas<true>{rows});
  return map_stretch(stretch, IntegerFormulas<false>{rows});
}
void FakeQuantE4m3(const Stretch& stretch, const E4m3Rows& rows) {
  return map_stretch(stretch, E4m3Formulas{rows});
}
void FakeQuantCast(const Stretch& stretch, const IntegerCast& cast) {
  return map_stretch(stretch, CastFormulas{cast});
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(VectorGroup);
HWY_EXPORT(MakeIntegerRows);
HWY_EXPORT(MakeE4m3Rows);
HWY_EXPORT(FakeQuantInteger);
HWY_EXPORT(FakeQuantE4m3);
HWY_EXPORT(FakeQuantCast);

namespace cpu {

std::int64_t vector_group() { return HWY_DYNAMIC_DISPATCH(VectorGroup)(); }

bool integer_rows(const float* amax, std::int64_t count, float upper, bool guard, float* scale,
                  float* divisor, float* inverse) {
  return HWY_DYNAMIC_DISPATCH(MakeIntegerRows)(amax, count, upper, guard, scale, divisor, inverse);
}
void e4m3_rows(const float* amax, std::int64_t count, float* scale, float* inverse) {
  HWY_DYNAMIC_DISPATCH(MakeE4m3Rows)(amax, count, scale, inverse);
}

void fake_quant(const Stretch& stretch, const IntegerRows& rows) {
  HWY_DYNAMIC_DISPATCH(FakeQuantInteger)(stretch, rows);
}
void fake_quant(const Stretch& stretch, const E4m3Rows& rows) {
  HWY_DYNAMIC_DISPATCH(FakeQuantE4m3)(stretch, rows);
}
void fake_quant(const Stretch& stretch, const IntegerCast& cast) {
  HWY_DYNAMIC_DISPATCH(FakeQuantCast)(stretch, cast);
}

}  // namespace cpu
}  // namespace fq
#endif
