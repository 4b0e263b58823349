#include "fakequant/core/backend/cpu/codes/scale_kernels.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/codes/scale_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

/// step(ranges + i, scales + i) for vectors of all; what stands beyond the end is 1.
template <class Step>
void for_ranges(float* ranges, float* scales, std::int64_t count, Step&& step) {
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

/// `scale` of a range, and `hold` of both: the range that the scale holds.
template <class Scale, class Hold>
bool scale_each(float* ranges, std::int64_t count, float* scales, const Scale& scale, const Hold& hold) {
  const FloatTag d;
  const auto none = hn::Zero(d), most = hn::Set(d, std::numeric_limits<float>::max());
  bool good = true;
  for_ranges(ranges, scales, count, [&](float* range, float* to) HWY_ATTR {
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
      return scale_each(
          ranges, count, scales,
          [&r](FloatVector amax) HWY_ATTR { return range_scale(amax, r.bound, r.least); },
          [](FloatVector amax, FloatVector) HWY_ATTR { return amax; });
    case Kind::raised:
      return scale_each(
          ranges, count, scales,
          [&r](FloatVector amax) HWY_ATTR { return power_of_two(range_scale(amax, r.bound, r.least)); },
          [&r](FloatVector amax, FloatVector scale) HWY_ATTR { return raised_range(amax, scale, r.bound); });
    case Kind::e4m3:
      return scale_each(
          ranges, count, scales,
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
HWY_EXPORT(RangeScales);

namespace cpu {

bool range_scales(const detail::ScaleRule& rule, float* ranges, std::int64_t count, float* scales) {
  return HWY_DYNAMIC_DISPATCH(RangeScales)(rule, ranges, count, scales);
}

}  // namespace cpu
}  // namespace fq
#endif
