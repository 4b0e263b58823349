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

/// Adds dy * share of kSums elements; share(i) is that of the vector at i.
template <class Share>
HWY_INLINE void add_shares(const float* dy, double* sums, Share&& share) {
  const DoubleTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  HWY_ALIGN float shares[kSums];
  for (std::int64_t i = 0; i < kSums; i += lanes) hn::Store(share(i), FloatTag(), shares + i);
  for (std::int64_t i = 0; i < kSums; i += static_cast<std::int64_t>(hn::Lanes(d)))
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), hn::Mul(widened(dy + i), widened(shares + i))), d, sums + i);
}

/// share(x, q) of all elements, those of the rest padded with gradients of 0.
template <class Share>
void add_all(const float* x, const float* q, const float* dy, std::int64_t count, const Share& share,
             double* sums) {
  const FloatTag d;
  const std::int64_t whole = count / kSums * kSums;
  for (std::int64_t i = 0; i < whole; i += kSums)
    add_shares(dy + i, sums, [&](std::int64_t k) HWY_ATTR {
      return share(hn::LoadU(d, x + i + k), hn::LoadU(d, q + i + k));
    });
  if (whole < count) {
    float last[3][kSums] = {};
    std::copy(x + whole, x + count, last[0]);
    std::copy(q + whole, q + count, last[1]);
    std::copy(dy + whole, dy + count, last[2]);
    add_shares(last[2], sums, [&](std::int64_t k) HWY_ATTR {
      return share(hn::LoadU(d, last[0] + k), hn::LoadU(d, last[1] + k));
    });
  }
}

void AddClipShares(const float* x, const float* dy, std::int64_t count, const fq::detail::GridRow& row,
                   double* lanes) {
  const auto lower_end = hn::Set(FloatTag(), row.mask_lower), amax = hn::Set(FloatTag(), row.amax);
  const auto share = [&](FloatVector v, FloatVector) HWY_ATTR { return clip_share(v, lower_end, amax); };
  add_all(x, x, dy, count, share, lanes);
}

void AddLsqShares(const float* x, const float* q, const float* dy, std::int64_t count,
                  const fq::detail::GridRow& row, double* lanes) {
  const FloatTag d;
  const auto scale = hn::Set(d, row.scale), lower_end = hn::Set(d, row.mask_lower),
             amax = hn::Set(d, row.amax);
  const auto share = [&](FloatVector v, FloatVector code)
                         HWY_ATTR { return lsq_share(v, code, scale, lower_end, amax); };
  add_all(x, q, dy, count, share, lanes);
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
