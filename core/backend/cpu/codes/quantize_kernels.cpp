#include "fakequant/core/backend/cpu/codes/quantize_kernels.h"

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
FloatVector code_of(FloatVector v, FloatVector scale, FloatVector lower, FloatVector upper) {
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
  const auto done = for_groups(count, mask, [&](std::int64_t i) HWY_ATTR {
    cpu::fetch_ahead(x + i);
    cpu::fetch_ahead(codes + i);
    const auto v = hn::LoadU(d, x + i);
    const auto bad = is_nan_(v);
    seen = hn::Or(seen, bad);
    store_codes(hn::IfThenZeroElse(bad, code_of<Code>(v, scale, lower, upper)), codes + i);
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
}  // namespace fq
#endif
