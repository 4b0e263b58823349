#include "fakequant/core/backend/cpu/codes/quantize_kernels.h"

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
using cpu::SumGrid;
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
    const auto v = hn::LoadU(d, x + i);
    const auto bad = is_nan_(v);
    seen = hn::Or(seen, bad);
    store_codes(hn::IfThenZeroElse(bad, code_of<Code>(v, scale, lower, upper)), codes + i);
    return mask_closed(v, below, amax);
  });
  *nan = *nan || !hn::AllFalse(d, seen);
  return done;
}

template <bool innermost, bool normalized, class Code>
std::int64_t requantize_run(const std::int32_t* sums, std::int64_t count, const SumGrid& g, Code* codes,
                            std::uint8_t* mask) {
  const FloatTag d;
  const IntTag di;
  const auto lower = hn::Set(d, g.lower), upper = hn::Set(d, g.upper);
  const auto amax = hn::Set(d, g.amax), below = hn::Set(d, g.open_below ? 0.0f : g.mask_lower);
  const auto floats = [&](const float* p, std::int64_t i) HWY_ATTR {
    if constexpr (innermost)
      return hn::LoadU(d, p + i);
    else
      return hn::Set(d, *p);
  };
  const auto integers = [&](const std::int32_t* p, std::int64_t i) HWY_ATTR {
    if (p == nullptr) return hn::Zero(di);
    if constexpr (innermost)
      return hn::LoadU(di, p + i);
    else
      return hn::Set(di, *p);
  };
  const auto code = [&](FloatVector a, std::int64_t i) HWY_ATTR {
    if constexpr (normalized)
      return normalized_code(a, floats(g.multiplier, i), floats(g.offset, i), lower, upper);
    else
      return requantize_code(a, floats(g.multiplier, i), lower, upper);
  };
  const auto value = [&](FloatVector a, std::int64_t i) HWY_ATTR {
    if constexpr (normalized)
      return normalized_sum(a, floats(g.scale, i), floats(g.shift, i));
    else
      return dequantize_code(a, floats(g.scale, i));
  };
  return for_groups(count, mask, [&](std::int64_t i) HWY_ATTR {
    const auto a = hn::ConvertTo(d, hn::Add(hn::LoadU(di, sums + i), integers(g.bias, i)));
    store_codes(code(a, i), codes + i);
    const auto v = value(a, i);
    return g.open_below ? mask_open_below(v, below, amax) : mask_closed(v, below, amax);
  });
}

template <bool normalized, class Code>
std::int64_t requantize_runs(const std::int32_t* sums, std::int64_t count, const SumGrid& g, Code* codes,
                             std::uint8_t* mask) {
  if (g.width == 0) return requantize_run<false, normalized>(sums, count, g, codes, mask);
  std::int64_t done = 0;
  for (std::int64_t i = 0; i < count; i += g.width)
    done = i + requantize_run<true, normalized>(sums + i, count - i < g.width ? count - i : g.width, g,
                                                codes + i, mask != nullptr ? mask + i / 8 : nullptr);
  return done;
}

template <class Code>
std::int64_t requantize_sums(const std::int32_t* sums, std::int64_t count, const SumGrid& g, Code* codes,
                             std::uint8_t* mask) {
  return g.shift != nullptr ? requantize_runs<true>(sums, count, g, codes, mask)
                            : requantize_runs<false>(sums, count, g, codes, mask);
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
std::int64_t RequantizeI8(const std::int32_t* sums, std::int64_t n, const SumGrid& g, std::int8_t* codes,
                          std::uint8_t* mask) {
  return requantize_sums(sums, n, g, codes, mask);
}
std::int64_t RequantizeU8(const std::int32_t* sums, std::int64_t n, const SumGrid& g, std::uint8_t* codes,
                          std::uint8_t* mask) {
  return requantize_sums(sums, n, g, codes, mask);
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(QuantizeI8);
HWY_EXPORT(QuantizeU8);
HWY_EXPORT(QuantizeE4m3);
HWY_EXPORT(RequantizeI8);
HWY_EXPORT(RequantizeU8);

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
std::int64_t requantize(const std::int32_t* sums, std::int64_t count, const SumGrid& grid, std::int8_t* codes,
                        std::uint8_t* mask) {
  return HWY_DYNAMIC_DISPATCH(RequantizeI8)(sums, count, grid, codes, mask);
}
std::int64_t requantize(const std::int32_t* sums, std::int64_t count, const SumGrid& grid,
                        std::uint8_t* codes, std::uint8_t* mask) {
  return HWY_DYNAMIC_DISPATCH(RequantizeU8)(sums, count, grid, codes, mask);
}
std::vector<std::int64_t> vector_targets() { return hwy::SupportedAndGeneratedTargets(); }
void use_vector_target(std::int64_t target) { hwy::SetSupportedTargetsForTest(target); }

}  // namespace cpu
}  // namespace fq
#endif
