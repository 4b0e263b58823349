#include <algorithm>
#include <limits>

#include "fakequant/core/backend/cpu/ranges/range_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/ranges/count_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#define FQ_FORMULAS_VECTOR
#include "fakequant/core/numerics/detail/histogram_formulas-inl.h"
#undef FQ_FORMULAS_VECTOR

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

using Integers = hn::RebindToSigned<FloatTag>;

constexpr std::size_t kChunk = 512;
static_assert(kChunk % (HWY_MAX_BYTES / sizeof(float)) == 0 && kChunk % cpu::kTables == 0);

/// Computes bins for `count` elements, in whole vectors.
HWY_ATTR void find_bins(const float* x, std::size_t count, const detail::BinRule& rule, std::size_t bins,
                        std::int32_t* out) {
  const FloatTag d;
  const auto factor = hn::Set(d, rule.factor), divisor = hn::Set(d, rule.divisor), top = hn::Set(d, rule.top),
             last = hn::Set(d, static_cast<float>(bins - 1)), dropped = hn::Set(d, static_cast<float>(bins)),
             lowest = hn::Set(d, rule.lowest());
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto bin = bin_position(hn::LoadU(d, x + i), factor, divisor, lowest, top, last, dropped);
    hn::StoreU(hn::ConvertTo(Integers(), bin), Integers(), out + i);
  }
}

// Neighbours count in different tables. Equal neighbours, for example zeros after a ReLU, would otherwise
// wait for each other's store.
HWY_ATTR void add(const std::int32_t* at, std::size_t count, std::uint16_t* tables) {
  for (std::size_t i = 0; i < count; i += cpu::kTables)
    for (std::size_t k = 0; k < cpu::kTables; ++k)
      ++tables[static_cast<std::size_t>(at[i + k]) * cpu::kTables + k];
}

void CountInto(const float* x, std::size_t count, const detail::BinRule& rule, std::size_t bins,
               std::uint16_t* tables) {
  HWY_ALIGN std::int32_t at[kChunk];
  std::size_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    find_bins(x + i, kChunk, rule, bins, at);
    add(at, kChunk, tables);
  }
  if (i == count) return;
  float rest[kChunk];
  // Infinity is above the last bin: the padding is counted as dropped.
  std::fill(std::copy(x + i, x + count, rest), rest + kChunk, std::numeric_limits<float>::infinity());
  find_bins(rest, kChunk, rule, bins, at);
  add(at, (count - i + cpu::kTables - 1) / cpu::kTables * cpu::kTables, tables);
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(CountInto);

namespace cpu {

void count_into(const float* x, std::size_t count, const BinRule& rule, std::size_t bins,
                std::uint16_t* tables) {
  HWY_DYNAMIC_DISPATCH(CountInto)(x, count, rule, bins, tables);
}

}  // namespace cpu
}  // namespace fq
#endif
