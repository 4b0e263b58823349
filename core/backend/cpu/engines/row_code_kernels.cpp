#include "fakequant/core/backend/cpu/engines/row_code_kernels.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/engines/row_code_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#include "fakequant/core/backend/cpu/codes/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kBlock = 32;

std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(FloatTag())); }

// x: [blocks, 32]. Every vector length divides 32.
bool BlockRanges(const float* x, std::int64_t blocks, float* amax) {
  const FloatTag d;
  FloatMask nan = is_nan_(hn::Zero(d));
  for (std::int64_t b = 0; b < blocks; ++b, x += kBlock) {
    FloatVector most = hn::Zero(d);
    for (std::int64_t i = 0; i < kBlock; i += lanes()) {
      const FloatVector v = hn::LoadU(d, x + i);
      nan = hn::Or(nan, is_nan_(v));
      // max_(NaN, most) is `most`: NaN does not enter the range and is reported separately.
      most = max_(abs_(v), most);
    }
    amax[b] = hn::GetLane(hn::MaxOfLanes(d, most));
  }
  return !hn::AllFalse(d, nan);
}

bool BlockExtremes(const float* x, std::int64_t blocks, float* extremes) {
  const FloatTag d;
  const bool nan = BlockRanges(x, blocks, extremes);
  for (std::int64_t b = 0; b < blocks; ++b, x += kBlock) {
    const FloatVector amax = hn::Set(d, extremes[b]);
    // ggml takes the first of equal magnitudes, and its sign.
    for (std::int64_t i = 0; i < kBlock && extremes[b] != 0; i += lanes()) {
      const auto at = hn::FindFirstTrue(d, hn::Eq(abs_(hn::LoadU(d, x + i)), amax));
      if (at < 0) continue;
      extremes[b] = x[i + at];
      break;
    }
  }
  return nan;
}

/// Applies `code` to blocks, each with its own factor.
template <class Code>
void codes_of_blocks(const float* x, std::int64_t blocks, const float* factors, std::int8_t* codes,
                     Code code) {
  const FloatTag d;
  for (std::int64_t b = 0; b < blocks; ++b, x += kBlock, codes += kBlock) {
    const FloatVector factor = hn::Set(d, factors[b]);
    for (std::int64_t i = 0; i < kBlock; i += lanes())
      store_codes(code(hn::LoadU(d, x + i), factor), codes + i);
  }
}

void HalvesUpCodes(const float* x, std::int64_t blocks, const float* factors, std::int8_t* codes) {
  codes_of_blocks(x, blocks, factors, codes,
                  [](FloatVector v, FloatVector factor) { return halves_up_code(v, factor); });
}

void BlockCodes(const float* x, std::int64_t blocks, const float* factors, std::int8_t* codes) {
  // 127 is the code of the largest magnitude. The clamp acts only on rounding errors of the factor.
  const FloatVector low = hn::Set(FloatTag(), -127.0f), high = hn::Set(FloatTag(), 127.0f);
  codes_of_blocks(x, blocks, factors, codes,
                  [&](FloatVector v, FloatVector factor) { return requantize_code(v, factor, low, high); });
}

bool RowRange(const float* x, std::int64_t columns, float* low, float* high) {
  const FloatTag d;
  FloatVector lowest = hn::Zero(d), highest = hn::Zero(d);
  FloatMask nans = is_nan_(lowest);
  std::int64_t k = 0;
  for (; k + lanes() <= columns; k += lanes()) {
    const FloatVector v = hn::LoadU(d, x + k);
    nans = hn::Or(nans, is_nan_(v));
    // The range begins at 0, so it includes 0. NaN in v leaves it unchanged.
    lowest = min_(v, lowest);
    highest = max_(v, highest);
  }
  bool nan = !hn::AllFalse(d, nans);
  *low = hn::GetLane(hn::MinOfLanes(d, lowest));
  *high = hn::GetLane(hn::MaxOfLanes(d, highest));
  // Rows of XNNPACK may have any length.
  for (; k < columns; ++k) {
    nan = nan || std::isnan(x[k]);
    *low = std::min(*low, x[k]);
    *high = std::max(*high, x[k]);
  }
  return nan;
}

std::int64_t RowCodes(const float* x, std::int64_t columns, float factor, float zero, std::int8_t* codes) {
  const FloatTag d;
  const FloatVector by = hn::Set(d, factor), to = hn::Set(d, zero);
  std::int64_t k = 0;
  for (; k + lanes() <= columns; k += lanes())
    store_codes(shifted_code(hn::LoadU(d, x + k), by, to), codes + k);
  return k;
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(BlockRanges);
HWY_EXPORT(BlockExtremes);
HWY_EXPORT(HalvesUpCodes);
HWY_EXPORT(BlockCodes);
HWY_EXPORT(RowRange);
HWY_EXPORT(RowCodes);

namespace cpu {

bool block_ranges(const float* x, std::int64_t blocks, float* amax) {
  return HWY_DYNAMIC_DISPATCH(BlockRanges)(x, blocks, amax);
}
bool block_extremes(const float* x, std::int64_t blocks, float* extremes) {
  return HWY_DYNAMIC_DISPATCH(BlockExtremes)(x, blocks, extremes);
}
void halves_up_codes(const float* x, std::int64_t blocks, const float* factors, std::int8_t* codes) {
  HWY_DYNAMIC_DISPATCH(HalvesUpCodes)(x, blocks, factors, codes);
}
void block_codes(const float* x, std::int64_t blocks, const float* factors, std::int8_t* codes) {
  HWY_DYNAMIC_DISPATCH(BlockCodes)(x, blocks, factors, codes);
}
bool row_range(const float* x, std::int64_t columns, float* low, float* high) {
  return HWY_DYNAMIC_DISPATCH(RowRange)(x, columns, low, high);
}
std::int64_t row_codes(const float* x, std::int64_t columns, float factor, float zero, std::int8_t* codes) {
  return HWY_DYNAMIC_DISPATCH(RowCodes)(x, columns, factor, zero, codes);
}

}  // namespace cpu
}  // namespace fq
#endif
