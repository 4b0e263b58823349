#include "fakequant/core/backend/cpu/vector/half_kernels.h"

#include "fakequant/core/backend/cpu/vector/cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/vector/half_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#include "fakequant/core/backend/cpu/vector/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

template <class To>
void narrow_all(const float* x, std::int64_t count, To* y) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    cpu::fetch_ahead(x + i);
    cpu::fetch_ahead(y + i);
    store(load(x + i), y + i, false);
  }
  for (; i < count; ++i) y[i] = To(x[i]);
}

void ToBf16(const float* x, std::int64_t count, bfloat16* y) { narrow_all(x, count, y); }
void ToF16(const float* x, std::int64_t count, float16* y) { narrow_all(x, count, y); }

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(ToBf16);
HWY_EXPORT(ToF16);

namespace cpu {

void narrow_floats(const float* x, std::int64_t count, bfloat16* y) {
  HWY_DYNAMIC_DISPATCH(ToBf16)(x, count, y);
}
void narrow_floats(const float* x, std::int64_t count, float16* y) {
  HWY_DYNAMIC_DISPATCH(ToF16)(x, count, y);
}

}  // namespace cpu
}  // namespace fq
#endif
