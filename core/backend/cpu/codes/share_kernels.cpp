#include "fakequant/core/backend/cpu/codes/share_kernels.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/codes/share_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

using DoubleTag = hn::ScalableTag<double>;
using HalfTag = hn::Rebind<float, DoubleTag>;

constexpr std::int64_t kSums = cpu::share_lanes;

hn::Vec<DoubleTag> widened(const float* p) { return hn::PromoteTo(DoubleTag(), hn::LoadU(HalfTag(), p)); }

/// Adds kSums terms to their sums; term(i) are those from i on, as doubles.
template <class Term>
HWY_INLINE void add_terms(double* sums, Term&& term) {
  const DoubleTag d;
  for (std::int64_t i = 0; i < kSums; i += static_cast<std::int64_t>(hn::Lanes(d)))
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), term(i)), d, sums + i);
}

/// Calls add(x, q, dy, sums) for kSums elements at a time, those of the rest padded with gradients of 0.
template <class Add>
void add_all(const float* x, const float* q, const float* dy, std::int64_t count, double* sums, Add&& add) {
  const std::int64_t whole = count / kSums * kSums;
  for (std::int64_t i = 0; i < whole; i += kSums) add(x + i, q + i, dy + i, sums);
  if (whole == count) return;
  float last[3][kSums] = {};
  std::copy(x + whole, x + count, last[0]);
  std::copy(q + whole, q + count, last[1]);
  std::copy(dy + whole, dy + count, last[2]);
  add(last[0], last[1], last[2], sums);
}

/// A share of -1, 0 or 1 times dy is exact before it is widened.
void AddClipShares(const float* x, const float* dy, std::int64_t count, const fq::detail::GridRow& row,
                   double* lanes) {
  const FloatTag d;
  const auto lower_end = hn::Set(d, row.mask_lower), amax = hn::Set(d, row.amax);
  add_all(x, x, dy, count, lanes, [&](const float* v, const float*, const float* g, double* sums) HWY_ATTR {
    HWY_ALIGN float terms[kSums];
    for (std::int64_t i = 0; i < kSums; i += static_cast<std::int64_t>(hn::Lanes(d)))
      hn::Store(hn::Mul(hn::LoadU(d, g + i), clip_share(hn::LoadU(d, v + i), lower_end, amax)), d, terms + i);
    add_terms(sums, [&](std::int64_t i) HWY_ATTR { return widened(terms + i); });
  });
}

void AddLsqShares(const float* x, const float* q, const float* dy, std::int64_t count,
                  const fq::detail::GridRow& row, double* lanes) {
  const FloatTag d;
  const auto scale = hn::Set(d, row.scale), lower_end = hn::Set(d, row.mask_lower),
             amax = hn::Set(d, row.amax);
  add_all(x, q, dy, count, lanes, [&](const float* v, const float* c, const float* g, double* sums) HWY_ATTR {
    HWY_ALIGN float shares[kSums];
    for (std::int64_t i = 0; i < kSums; i += static_cast<std::int64_t>(hn::Lanes(d)))
      hn::Store(lsq_share(hn::LoadU(d, v + i), hn::LoadU(d, c + i), scale, lower_end, amax), d, shares + i);
    add_terms(sums, [&](std::int64_t i) HWY_ATTR { return hn::Mul(widened(g + i), widened(shares + i)); });
  });
}

template <class Code>
std::int64_t find_end(const Code* codes, std::int64_t count, Code upper) {
  const hn::CappedTag<Code, cpu::end_group> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Code lower = std::is_signed_v<Code> ? static_cast<Code>(-upper) : Code{0};
  const auto high = hn::Set(d, upper), low = hn::Set(d, lower);
  const auto inside = [&](const Code* p) HWY_ATTR {
    const auto v = hn::LoadU(d, p);
    if constexpr (std::is_signed_v<Code>) return hn::And(hn::Lt(v, high), hn::Lt(low, v));
    return hn::Lt(v, high);
  };
  std::int64_t i = 0;
  for (; i + cpu::end_group <= count; i += cpu::end_group) {
    auto all = inside(codes + i);
    for (std::int64_t k = lanes; k < cpu::end_group; k += lanes) all = hn::And(all, inside(codes + i + k));
    if (!hn::AllTrue(d, all)) return i;
  }
  for (std::int64_t k = i; k < count; ++k)
    if (codes[k] >= upper || (std::is_signed_v<Code> && codes[k] <= lower)) return i;
  return count;
}

std::int64_t FindEndI8(const std::int8_t* codes, std::int64_t count, std::int8_t upper) {
  return find_end(codes, count, upper);
}
std::int64_t FindEndU8(const std::uint8_t* codes, std::int64_t count, std::uint8_t upper) {
  return find_end(codes, count, upper);
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(AddClipShares);
HWY_EXPORT(AddLsqShares);
HWY_EXPORT(FindEndI8);
HWY_EXPORT(FindEndU8);

namespace cpu {
namespace {

/// Lanes from 0, added up in their order.
template <class Add>
double lane_sum(Add&& add) {
  double lanes[share_lanes] = {}, sum = 0;
  add(lanes);
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

void add_clip_shares(const float* x, const float* dy, std::int64_t count, const detail::GridRow& row,
                     double* lanes) {
  HWY_DYNAMIC_DISPATCH(AddClipShares)(x, dy, count, row, lanes);
}
double clip_sum(const float* x, const float* dy, std::int64_t count, const detail::GridRow& row) {
  return lane_sum([&](double* lanes) { add_clip_shares(x, dy, count, row, lanes); });
}
double lsq_sum(const float* x, const float* q, const float* dy, std::int64_t count,
               const detail::GridRow& row) {
  return lane_sum([&](double* lanes) { HWY_DYNAMIC_DISPATCH(AddLsqShares)(x, q, dy, count, row, lanes); });
}
std::int64_t find_end(const std::int8_t* codes, std::int64_t count, std::int8_t upper) {
  return HWY_DYNAMIC_DISPATCH(FindEndI8)(codes, count, upper);
}
std::int64_t find_end(const std::uint8_t* codes, std::int64_t count, std::uint8_t upper) {
  return HWY_DYNAMIC_DISPATCH(FindEndU8)(codes, count, upper);
}

}  // namespace cpu
}  // namespace fq
#endif
