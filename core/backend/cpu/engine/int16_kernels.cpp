#include "fakequant/core/backend/cpu/engine/int16_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/engine/int16_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Int16Tag = hn::ScalableTag<std::int16_t>;
using Int16Vector = hn::Vec<Int16Tag>;
using SumTag = hn::RepartitionToWide<Int16Tag>;
using SumVector = hn::Vec<SumTag>;

HWY_ATTR inline Int16Vector load_int16(const std::int16_t* p) { return hn::LoadU(Int16Tag(), p); }
HWY_ATTR inline Int16Vector load_int16(const std::int8_t* p) {
  return hn::PromoteTo(Int16Tag(), hn::LoadU(hn::Rebind<std::int8_t, Int16Tag>(), p));
}

/// Multiplies `rows` rows by `columns` columns, over whole vectors below `end`. Returns the end of the last
/// vector.
template <int rows, int columns, class W>
HWY_ATTR HWY_INLINE std::int64_t tile(const std::int16_t* x, const W* w, std::int64_t pitch, std::int64_t end,
                                      std::int32_t* sums, std::int64_t sums_pitch) {
  const SumTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Int16Tag()));
  // A product of codes is at most 255 * 255 in magnitude. PMADDWD adds two of them in int32 and cannot
  // saturate.
  SumVector sum[rows][columns], rest[rows][columns];  // two halves of a product: NEON adds to both
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) sum[r][c] = rest[r][c] = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= end; i += lanes) {
    Int16Vector left[rows];
    for (int r = 0; r < rows; ++r) left[r] = load_int16(x + r * pitch + i);
    for (int c = 0; c < columns; ++c) {
      const Int16Vector right = load_int16(w + c * pitch + i);
      for (int r = 0; r < rows; ++r)
        sum[r][c] = hn::ReorderWidenMulAccumulate(d, left[r], right, sum[r][c], rest[r][c]);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      sums[r * sums_pitch + c] = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[r][c], rest[r][c])));
  return i;
}

template <int rows>
void row_tiles(const cpu::Int16Task& t, std::int64_t r, std::int64_t begin, std::int64_t end) {
  std::int64_t c = begin;
  const std::int16_t* x = t.x + r * t.pitch;
  std::int32_t* out = t.sums + r * t.sums_pitch;
  for (; c + 4 <= end; c += 4) tile<rows, 4>(x, t.w + c * t.pitch, t.pitch, t.pitch, out + c, t.sums_pitch);
  for (; c < end; ++c) tile<rows, 1>(x, t.w + c * t.pitch, t.pitch, t.pitch, out + c, t.sums_pitch);
}

// 2^13 int16 values are 16 KB, half of the usual first-level cache.
/// Processes some columns at a time, whose values fit into the first-level cache.
void MultiplyInt16(const cpu::Int16Task& t) {
  const std::int64_t columns =
      std::max<std::int64_t>((std::int64_t{1} << 13) / std::max<std::int64_t>(t.pitch, 1) / 4 * 4, 4);
  for (std::int64_t c = 0; c < t.columns; c += columns) {
    const std::int64_t end = std::min(c + columns, t.columns);
    std::int64_t r = 0;
    for (; r + 2 <= t.rows; r += 2) row_tiles<2>(t, r, c, end);
    for (; r < t.rows; ++r) row_tiles<1>(t, r, c, end);
  }
}

// For one row, widening w first would cost more than the products: the kernel widens in registers.
void MultiplyRow(const std::int16_t* x, const std::int8_t* w, std::int64_t n, std::int64_t k,
                 std::int32_t* sums) {
  const auto finish = [=](std::int64_t c, std::int64_t from) {
    for (std::int64_t i = from; i < k; ++i) sums[c] += x[i] * w[c * k + i];
  };
  std::int64_t c = 0;
  for (; c + 4 <= n; c += 4) {
    const std::int64_t from = tile<1, 4>(x, w + c * k, k, k, sums + c, 0);
    for (std::int64_t j = c; j < c + 4; ++j) finish(j, from);
  }
  for (; c < n; ++c) finish(c, tile<1, 1>(x, w + c * k, k, k, sums + c, 0));
}

template <class Code>
HWY_INLINE void widen(const Code* codes, std::int64_t rows, std::int64_t k, std::int64_t pitch,
                      std::int16_t* values) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const Code* from = codes + r * k;
    std::int16_t* to = values + r * pitch;
    for (std::int64_t i = 0; i < k; ++i) to[i] = from[i];
    std::fill(to + k, to + pitch, std::int16_t{0});
  }
}
void WidenSigned(const std::int8_t* codes, std::int64_t rows, std::int64_t k, std::int64_t pitch,
                 std::int16_t* values) {
  widen(codes, rows, k, pitch, values);
}
void WidenUnsigned(const std::uint8_t* codes, std::int64_t rows, std::int64_t k, std::int64_t pitch,
                   std::int16_t* values) {
  widen(codes, rows, k, pitch, values);
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(MultiplyInt16);
HWY_EXPORT(MultiplyRow);
HWY_EXPORT(WidenSigned);
HWY_EXPORT(WidenUnsigned);

namespace cpu {

void widen_codes(const std::int8_t* codes, std::int64_t rows, std::int64_t k, std::int64_t pitch,
                 std::int16_t* values) {
  HWY_DYNAMIC_DISPATCH(WidenSigned)(codes, rows, k, pitch, values);
}
void widen_codes(const std::uint8_t* codes, std::int64_t rows, std::int64_t k, std::int64_t pitch,
                 std::int16_t* values) {
  HWY_DYNAMIC_DISPATCH(WidenUnsigned)(codes, rows, k, pitch, values);
}
void multiply_int16(const Int16Task& task) { HWY_DYNAMIC_DISPATCH(MultiplyInt16)(task); }
void multiply_row(const std::int16_t* x, const std::int8_t* w, std::int64_t n, std::int64_t k,
                  std::int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(MultiplyRow)(x, w, n, k, sums);
}

}  // namespace cpu
}  // namespace fq
#endif
