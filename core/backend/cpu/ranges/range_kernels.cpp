#include "fakequant/core/backend/cpu/ranges/range_kernels.h"

#include <algorithm>
#include <bit>

#include "fakequant/core/backend/cpu/vector/cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/ranges/range_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using Bits = hn::RebindToSigned<Floats>;

// One pass finds both: calibrators need the magnitude, asymmetric grids also the minimum.
struct Lane {
  hn::Vec<Bits> magnitude;
  hn::Vec<Floats> minimum;
};

/// Returns |x| as integer bits: NaN is then larger than all other values and stays visible.
HWY_ATTR hn::Vec<Bits> magnitude_bits(hn::Vec<Floats> x) { return hn::BitCast(Bits(), hn::Abs(x)); }

HWY_ATTR void take(Lane& lane, const float* x) {
  const auto v = hn::LoadU(Floats(), x);
  lane.magnitude = hn::Max(lane.magnitude, magnitude_bits(v));
  lane.minimum = hn::Min(lane.minimum, v);
}

cpu::Extremes take_one(const cpu::Extremes& seen, float x) {
  return {std::max(seen.magnitude, std::bit_cast<std::int32_t>(x) & 0x7fffffff), std::min(seen.minimum, x)};
}

cpu::Extremes FindExtremes(const float* x, std::int64_t count) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  // The minimum begins at x[0], because the range of a tensor need not include 0.
  const Lane start{hn::Zero(Bits()), hn::Set(Floats(), x[0])};
  // Four independent chains hide the latency of min and max.
  Lane a = start, b = start, c = start, d = start;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    cpu::fetch_ahead(x + i, 4 * lanes);
    take(a, x + i);
    take(b, x + i + lanes);
    take(c, x + i + 2 * lanes);
    take(d, x + i + 3 * lanes);
  }
  for (; i + lanes <= count; i += lanes) take(a, x + i);
  const auto magnitude = hn::Max(hn::Max(a.magnitude, b.magnitude), hn::Max(c.magnitude, d.magnitude));
  const auto minimum = hn::Min(hn::Min(a.minimum, b.minimum), hn::Min(c.minimum, d.minimum));
  cpu::Extremes out{hn::GetLane(hn::MaxOfLanes(Bits(), magnitude)),
                    hn::GetLane(hn::MinOfLanes(Floats(), minimum))};
  for (; i < count; ++i) out = take_one(out, x[i]);
  return out;
}

// One range per element: channels innermost, or blocks of one element.
void RaiseMagnitudes(const float* x, std::int64_t count, std::int32_t* out) {
  const Bits bits;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(bits));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Max(hn::LoadU(bits, out + i), magnitude_bits(hn::LoadU(Floats(), x + i))), bits, out + i);
  for (; i < count; ++i) out[i] = std::max(out[i], std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
}

// x: [blocks, length], out: [blocks].
void BlockMagnitudes(const float* x, std::int64_t blocks, std::int64_t length, std::int32_t* out) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  for (std::int64_t k = 0; k < blocks; ++k, x += length) {
    cpu::fetch_ahead(x, length);
    // `length` is a multiple of 16, the lanes of the widest vectors: no rest.
    auto most = magnitude_bits(hn::LoadU(Floats(), x));
    for (std::int64_t i = lanes; i < length; i += lanes)
      most = hn::Max(most, magnitude_bits(hn::LoadU(Floats(), x + i)));
    out[k] = hn::GetLane(hn::MaxOfLanes(Bits(), most));
  }
}

// x: [tiles, rows, columns], out: [tiles, columns]. Columns stay in registers over the rows.
void ColumnMagnitudes(const float* x, std::int64_t tiles, std::int64_t rows, std::int64_t columns,
                      std::int32_t* out) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  for (std::int64_t t = 0; t < tiles; ++t, x += rows * columns, out += columns)
    for (std::int64_t c = 0; c < columns; c += lanes) {
      auto most = magnitude_bits(hn::LoadU(Floats(), x + c));
      for (std::int64_t r = 1; r < rows; ++r)
        most = hn::Max(most, magnitude_bits(hn::LoadU(Floats(), x + r * columns + c)));
      hn::StoreU(most, Bits(), out + c);
    }
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(FindExtremes);
HWY_EXPORT(RaiseMagnitudes);
HWY_EXPORT(BlockMagnitudes);
HWY_EXPORT(ColumnMagnitudes);

namespace cpu {

Extremes extremes(const float* x, std::int64_t count) { return HWY_DYNAMIC_DISPATCH(FindExtremes)(x, count); }
void raise_magnitudes(const float* x, std::int64_t count, std::int32_t* out) {
  HWY_DYNAMIC_DISPATCH(RaiseMagnitudes)(x, count, out);
}

void block_magnitudes(const float* x, std::int64_t blocks, std::int64_t length, std::int32_t* out) {
  HWY_DYNAMIC_DISPATCH(BlockMagnitudes)(x, blocks, length, out);
}
void column_magnitudes(const float* x, std::int64_t tiles, std::int64_t rows, std::int64_t columns,
                       std::int32_t* out) {
  HWY_DYNAMIC_DISPATCH(ColumnMagnitudes)(x, tiles, rows, columns, out);
}

}  // namespace cpu
}  // namespace fq
#endif
