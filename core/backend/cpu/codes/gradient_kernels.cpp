#include "fakequant/core/backend/cpu/codes/gradient_kernels.h"

#include <algorithm>

#include "fakequant/core/backend/cpu/vector/cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/codes/gradient_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#include "fakequant/core/backend/cpu/vector/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

FQ_HD void put(ShortVector v, bfloat16* p) { store_short(v, p, false); }
FQ_HD void put(ShortVector v, float* p) { store(widen_bf16(v), p, false); }

template <bool sum, class Out>
void scale_run(const float* dy, std::int64_t count, const float* scale, Out* out, float* sums = nullptr) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    cpu::fetch_ahead(dy + i);
    cpu::fetch_ahead(out + i);
    const FloatVector v = load(dy + i);
    put(narrow_bf16(mul_(v, load(scale + i))), out + i);
    if constexpr (sum) store(add_(load(sums + i), v), sums + i, false);
  }
  for (; i < count; ++i) {
    if constexpr (sum) sums[i] += dy[i];
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
    scale_run<false>(dy + i, std::min(width, count - i), scale, out + i);
}

void ScaleToBf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale, bfloat16* out) {
  scale_runs(dy, count, width, scale, out);
}
void ScaleToRounded(const float* dy, std::int64_t count, std::int64_t width, const float* scale, float* out) {
  scale_runs(dy, count, width, scale, out);
}

void ScaleAndSum(const float* dy, std::int64_t count, const float* scale, bfloat16* out, float* sums) {
  scale_run<true>(dy, count, scale, out, sums);
}
void RoundAndSum(const float* dy, std::int64_t count, const float* scale, float* out, float* sums) {
  scale_run<true>(dy, count, scale, out, sums);
}

void ScaleAndAdd(float* y, std::int64_t count, std::int64_t width, const float* scale, const float* bias) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  for (std::int64_t run = 0; run < count; run += width, y += width) {
    const std::int64_t size = std::min(width, count - run);
    std::int64_t i = 0;
    for (; i + lanes <= size; i += lanes)
      store(scaled_product(load(y + i), load(scale + i), load(bias + i)), y + i, false);
    for (; i < size; ++i) y[i] = y[i] * scale[i] + bias[i];
  }
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(ScaleToBf16);
HWY_EXPORT(ScaleToRounded);
HWY_EXPORT(ScaleAndSum);
HWY_EXPORT(RoundAndSum);
HWY_EXPORT(ScaleAndAdd);

namespace cpu {

void scale_to_bf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale,
                   bfloat16* out) {
  HWY_DYNAMIC_DISPATCH(ScaleToBf16)(dy, count, width, scale, out);
}
void scale_to_bf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleToRounded)(dy, count, width, scale, out);
}

void scale_and_sum(const float* dy, std::int64_t count, const float* scale, bfloat16* out, float* sums) {
  HWY_DYNAMIC_DISPATCH(ScaleAndSum)(dy, count, scale, out, sums);
}
void scale_and_sum(const float* dy, std::int64_t count, const float* scale, float* out, float* sums) {
  HWY_DYNAMIC_DISPATCH(RoundAndSum)(dy, count, scale, out, sums);
}

void scale_and_add(float* y, std::int64_t count, std::int64_t width, const float* scale, const float* bias) {
  HWY_DYNAMIC_DISPATCH(ScaleAndAdd)(y, count, width, scale, bias);
}

}  // namespace cpu
}  // namespace fq
#endif
