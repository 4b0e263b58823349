#include "fakequant/core/backend/cpu/codes/quantize_kernels.h"

#include <algorithm>
#include <limits>

#include "fakequant/core/backend/cpu/vector/cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/codes/quantize_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#include "fakequant/core/backend/cpu/codes/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
using cpu::GridRow;

template <class Code>
FloatVector rounded_code(FloatVector v, FloatVector scale, FloatVector lower, FloatVector upper) {
  if constexpr (std::is_same_v<Code, E4m3>) return quantize_e4m3(v, scale);
  return quantize_code(v, scale, lower, upper);
}

template <class Code>
std::int64_t quantize_codes(const float* x, std::int64_t count, const GridRow& row, Code* codes,
                            std::uint8_t* mask, bool* nan) {
  const FloatTag d;
  const auto scale = hn::Set(d, row.scale), lower = hn::Set(d, row.lower), upper = hn::Set(d, row.upper);
  const auto amax = hn::Set(d, row.amax), below = hn::Set(d, row.mask_lower);
  auto seen = hn::MaskFromVec(hn::Zero(d));
  const auto done = visit_groups(count, mask, [&](std::int64_t i) HWY_ATTR {
    cpu::fetch_ahead(x + i);
    cpu::fetch_ahead(codes + i);
    const auto v = hn::LoadU(d, x + i);
    const auto bad = is_nan_(v);
    seen = hn::Or(seen, bad);
    // Conversion of NaN to an integer is undefined, so NaN becomes code 0 first.
    store_codes(hn::IfThenZeroElse(bad, rounded_code<Code>(v, scale, lower, upper)), codes + i);
    return mask_closed(v, below, amax);
  });
  *nan = *nan || !hn::AllFalse(d, seen);
  return done;
}

std::int64_t QuantizeI8(const float* x, std::int64_t n, const GridRow& row, std::int8_t* codes,
                        std::uint8_t* mask, bool* nan) {
  return quantize_codes(x, n, row, codes, mask, nan);
}
std::int64_t QuantizeU8(const float* x, std::int64_t n, const GridRow& row, std::uint8_t* codes,
                        std::uint8_t* mask, bool* nan) {
  return quantize_codes(x, n, row, codes, mask, nan);
}
std::int64_t QuantizeE4m3(const float* x, std::int64_t n, const GridRow& row, E4m3* codes, std::uint8_t* mask,
                          bool* nan) {
  return quantize_codes(x, n, row, codes, mask, nan);
}

namespace {

/// Calls step(ranges + i, scales + i) for vectors that cover all ranges. Elements beyond the end are 1.
template <class Step>
void visit_ranges(float* ranges, float* scales, std::int64_t count, Step&& step) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) step(ranges + i, scales + i);
  if (i == count) return;
  float range[HWY_MAX_BYTES / sizeof(float)], scale[HWY_MAX_BYTES / sizeof(float)];
  std::fill(std::copy(ranges + i, ranges + count, range), range + lanes, 1.0f);
  step(range, scale);
  std::copy_n(range, count - i, ranges + i);
  std::copy_n(scale, count - i, scales + i);
}

/// Computes each scale with `scale`, and with `hold` the range that the scale represents.
template <class Scale, class Hold>
bool scale_each(float* ranges, std::int64_t count, float* scales, const Scale& scale, const Hold& hold) {
  const FloatTag d;
  // Valid ranges are 0 <= amax <= FLT_MAX. NaN fails the comparison, too.
  const auto none = hn::Zero(d), most = hn::Set(d, std::numeric_limits<float>::max());
  bool good = true;
  visit_ranges(ranges, scales, count, [&](float* range, float* to) HWY_ATTR {
    const auto amax = hn::LoadU(d, range), made = scale(amax);
    const auto valid = mask_closed(amax, none, most);
    good = good && hn::AllTrue(d, valid);
    hn::StoreU(select_(valid, hold(amax, made), amax), d, range);
    hn::StoreU(made, d, to);
  });
  return good;
}

bool RangeScales(const fq::detail::ScaleRule& r, float* ranges, std::int64_t count, float* scales) {
  using Kind = fq::detail::ScaleRule::Kind;
  const auto held = [&r](FloatVector amax, FloatVector scale)
                        HWY_ATTR { return held_range(amax, scale, r.bound); };
  switch (r.kind) {
    case Kind::exact:
      // The stored range is amax itself, because scale = amax / bound needs no further rounding.
      return scale_each(
          ranges, count, scales,
          [&r](FloatVector amax) HWY_ATTR { return range_scale(amax, r.bound, r.least); },
          [](FloatVector amax, FloatVector) HWY_ATTR { return amax; });
    case Kind::raised:
      return scale_each(
          ranges, count, scales,
          // Rounding the scale up to a power of two widens the range.
          [&r](FloatVector amax) HWY_ATTR { return power_of_two(range_scale(amax, r.bound, r.least)); },
          [&r](FloatVector amax, FloatVector scale) HWY_ATTR { return raised_range(amax, scale, r.bound); });
    case Kind::e4m3:
      return scale_each(
          ranges, count, scales,
          // The scale may be rounded down. The range still is at least amax, so that the mask passes every
          // value.
          [&r](FloatVector amax) HWY_ATTR { return e4m3_scale(amax, r.bound, r.unit); }, held);
    default:
      return scale_each(
          ranges, count, scales, [&r](FloatVector amax) HWY_ATTR { return e8m0_scale(amax, r.bound); }, held);
  }
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(QuantizeI8);
HWY_EXPORT(QuantizeU8);
HWY_EXPORT(QuantizeE4m3);

namespace cpu {

std::int64_t quantize(const float* x, std::int64_t count, const GridRow& row, std::int8_t* codes,
                      std::uint8_t* mask, bool* nan) {
  return HWY_DYNAMIC_DISPATCH(QuantizeI8)(x, count, row, codes, mask, nan);
}
std::int64_t quantize(const float* x, std::int64_t count, const GridRow& row, std::uint8_t* codes,
                      std::uint8_t* mask, bool* nan) {
  return HWY_DYNAMIC_DISPATCH(QuantizeU8)(x, count, row, codes, mask, nan);
}
std::int64_t quantize(const float* x, std::int64_t count, const GridRow& row, E4m3* codes, std::uint8_t* mask,
                      bool* nan) {
  return HWY_DYNAMIC_DISPATCH(QuantizeE4m3)(x, count, row, codes, mask, nan);
}
std::vector<std::int64_t> vector_targets() { return hwy::SupportedAndGeneratedTargets(); }
void use_vector_target(std::int64_t target) { hwy::SetSupportedTargetsForTest(target); }

}  // namespace cpu

HWY_EXPORT(RangeScales);

namespace cpu {

bool range_scales(const detail::ScaleRule& rule, float* ranges, std::int64_t count, float* scales) {
  return HWY_DYNAMIC_DISPATCH(RangeScales)(rule, ranges, count, scales);
}

}  // namespace cpu

}  // namespace fq
#endif
