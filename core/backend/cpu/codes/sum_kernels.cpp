#include "fakequant/core/backend/cpu/codes/sum_kernels.h"

#include "fakequant/core/backend/cpu/vector/cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/codes/sum_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#include "fakequant/core/backend/cpu/codes/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

using cpu::SumGrid;
using cpu::SumValues;

/// The sums of a run, of one channel or of channels that advance with the elements.
template <bool innermost, bool normalized>
struct Sums {
  const std::int32_t* sums;
  const SumValues& numbers;

  static FloatVector at(const float* p, std::int64_t i) {
    if constexpr (innermost) return hn::LoadU(FloatTag(), p + i);
    return hn::Set(FloatTag(), *p);
  }
  auto bias(std::int64_t i) const {
    const IntTag d;
    if (numbers.bias == nullptr) return hn::Zero(d);
    if constexpr (innermost) return hn::LoadU(d, numbers.bias + i);
    return hn::Set(d, *numbers.bias);
  }
  FloatVector operator()(std::int64_t i) const {
    return hn::ConvertTo(FloatTag(), hn::Add(hn::LoadU(IntTag(), sums + i), bias(i)));
  }
  FloatVector value(FloatVector a, std::int64_t i) const {
    if constexpr (normalized) return normalized_sum(a, at(numbers.scale, i), at(numbers.shift, i));
    return dequantize_code(a, at(numbers.scale, i));
  }
};

template <bool innermost, bool normalized, class Code>
std::int64_t requantize_run(const std::int32_t* sums, std::int64_t count, const SumGrid& g, Code* codes,
                            std::uint8_t* mask) {
  using Run = Sums<innermost, normalized>;
  const Run run{sums, g.values};
  const SumReader reader(g.reader);
  const auto code = [&](FloatVector a, std::int64_t i) HWY_ATTR {
    if constexpr (normalized)
      return normalized_code(a, Run::at(g.multiplier, i), Run::at(g.offset, i), reader.lower, reader.upper);
    else
      return requantize_code(a, Run::at(g.multiplier, i), reader.lower, reader.upper);
  };
  return for_groups(count, mask, [&](std::int64_t i) HWY_ATTR {
    const auto a = run(i);
    store_codes(code(a, i), codes + i);
    return reader.passes(run.value(a, i));
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
  return g.offset != nullptr ? requantize_runs<true>(sums, count, g, codes, mask)
                             : requantize_runs<false>(sums, count, g, codes, mask);
}

template <bool innermost, bool normalized>
std::int64_t values_of(const std::int32_t* sums, std::int64_t count, const SumValues& numbers, float* y) {
  const FloatTag d;
  const Sums<innermost, normalized> run{sums, numbers};
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t done = count / lanes * lanes;
  for (std::int64_t i = 0; i < done; i += lanes) {
    cpu::fetch_ahead(y + i);
    hn::StoreU(run.value(run(i), i), d, y + i);
  }
  return done;
}

std::int64_t RequantizeI8(const std::int32_t* sums, std::int64_t n, const SumGrid& g, std::int8_t* codes,
                          std::uint8_t* mask) {
  return requantize_sums(sums, n, g, codes, mask);
}
std::int64_t RequantizeU8(const std::int32_t* sums, std::int64_t n, const SumGrid& g, std::uint8_t* codes,
                          std::uint8_t* mask) {
  return requantize_sums(sums, n, g, codes, mask);
}
std::int64_t ValuesOfSums(const std::int32_t* sums, std::int64_t n, const SumValues& v, bool innermost,
                          float* y) {
  if (v.shift != nullptr)
    return innermost ? values_of<true, true>(sums, n, v, y) : values_of<false, true>(sums, n, v, y);
  return innermost ? values_of<true, false>(sums, n, v, y) : values_of<false, false>(sums, n, v, y);
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(RequantizeI8);
HWY_EXPORT(RequantizeU8);
HWY_EXPORT(ValuesOfSums);

namespace cpu {

std::int64_t requantize(const std::int32_t* sums, std::int64_t count, const SumGrid& grid, std::int8_t* codes,
                        std::uint8_t* mask) {
  return HWY_DYNAMIC_DISPATCH(RequantizeI8)(sums, count, grid, codes, mask);
}
std::int64_t requantize(const std::int32_t* sums, std::int64_t count, const SumGrid& grid,
                        std::uint8_t* codes, std::uint8_t* mask) {
  return HWY_DYNAMIC_DISPATCH(RequantizeU8)(sums, count, grid, codes, mask);
}
std::int64_t sum_values(const std::int32_t* sums, std::int64_t count, const SumValues& values, bool innermost,
                        float* y) {
  return HWY_DYNAMIC_DISPATCH(ValuesOfSums)(sums, count, values, innermost, y);
}

}  // namespace cpu
}  // namespace fq
#endif
