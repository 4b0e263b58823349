#include "fakequant/core/backend/cpu/elementwise/gelu_table_kernels.h"

#include "fakequant/core/backend/cpu/vector/cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/elementwise/gelu_table_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#include "fakequant/core/backend/cpu/vector/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

std::int64_t GeluEntriesOf(const float* x, std::int64_t n, const float* entries, float* y) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> places;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const FloatVector low = hn::Set(d, -10.0f), high = hn::Set(d, 10.0f);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    cpu::fetch_ahead(y + i);
    const FloatVector v = hn::LoadU(d, x + i);
    const FloatVector entry = hn::GatherIndex(d, entries, hn::PromoteTo(places, narrow_f16(v)));
    const FloatVector near = select_(less_equal_(high, v), v, entry);
    hn::StoreU(select_(less_equal_(v, low), hn::Zero(d), near), d, y + i);
  }
  return i;
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(GeluEntriesOf);

std::int64_t cpu::gelu_entries_of(const float* x, std::int64_t n, const float* entries, float* y) {
  return HWY_DYNAMIC_DISPATCH(GeluEntriesOf)(x, n, entries, y);
}

}  // namespace fq
#endif
