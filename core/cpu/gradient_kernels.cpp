#include "fakequant/core/cpu/gradient_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/cpu/gradient_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/cpu/vector-inl.h"
//
#include "fakequant/core/cpu/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

FQ_HD void put(ShortVector v, bfloat16* p) { store_short(v, p, false); }
FQ_HD void put(ShortVector v, float* p) { store(widen_bf16(v), p, false); }

template <class Out>
void scale_run(const float* dy, std::int64_t count, const float* scale, Out* out) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) put(narrow_bf16(mul_(load(dy + i), load(scale + i))), out + i);
  for (; i < count; ++i) {
    const bfloat16 rounded(dy[i] * scale[i]);
    if constexpr (sizeof(Out) == sizeof(bfloat16))
      out[i] = rounded;
    else
      out[i] = static_cast<float>(rounded);
  }
}

template <class Out>
void scale_runs(const float* dy, std::int64_t count, std::int64_t width, const float* scale, Out* out) {
  for (std::int64_t i = 0; i < count; i += width)
    scale_run(dy + i, std::min(width, count - i), scale, out + i);
}

void ScaleToBf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale, bfloat16* out) {
  scale_runs(dy, count, width, scale, out);
}
void ScaleToRounded(const float* dy, std::int64_t count, std::int64_t width, const float* scale, float* out) {
  scale_runs(dy, count, width, scale, out);
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(ScaleToBf16);
HWY_EXPORT(ScaleToRounded);

namespace cpu {

void scale_to_bf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale,
                   bfloat16* out) {
  HWY_DYNAMIC_DISPATCH(ScaleToBf16)(dy, count, width, scale, out);
}
void scale_to_bf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleToRounded)(dy, count, width, scale, out);
}

}  // namespace cpu
}  // namespace fq
#endif
