#include "fakequant/core/backend/cpu/codes/share_kernels.h"

#include <algorithm>
#include <iterator>

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

/// Sixteen sums, of the elements i, i + 16, .., on every target.
constexpr std::int64_t kSums = 16;

hn::Vec<DoubleTag> widened(const float* p) { return hn::PromoteTo(DoubleTag(), hn::LoadU(HalfTag(), p)); }

/// Adds dy * share of kSums elements; share(i) is that of the vector at i.
template <class Share>
HWY_INLINE void add_shares(const float* dy, double* sums, Share&& share) {
  const DoubleTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  HWY_ALIGN float shares[kSums];
  for (std::int64_t i = 0; i < kSums; i += lanes) hn::Store(share(i), FloatTag(), shares + i);
  for (std::int64_t i = 0; i < kSums; i += static_cast<std::int64_t>(hn::Lanes(d)))
    hn::Store(hn::Add(hn::Load(d, sums + i), hn::Mul(widened(dy + i), widened(shares + i))), d, sums + i);
}

/// share(x, q) of all elements, those of the rest padded with gradients of 0.
template <class Share>
double sum_of(const float* x, const float* q, const float* dy, std::int64_t count, const Share& share) {
  HWY_ALIGN double sums[kSums] = {};
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
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

double ClipSum(const float* x, const float* dy, std::int64_t count, const fq::detail::GridRow& row) {
  const auto lower_end = hn::Set(FloatTag(), row.mask_lower), amax = hn::Set(FloatTag(), row.amax);
  return sum_of(x, x, dy, count,
                [&](FloatVector v, FloatVector) HWY_ATTR { return clip_share(v, lower_end, amax); });
}

double LsqSum(const float* x, const float* q, const float* dy, std::int64_t count,
              const fq::detail::GridRow& row) {
  const FloatTag d;
  const auto scale = hn::Set(d, row.scale), lower_end = hn::Set(d, row.mask_lower),
             amax = hn::Set(d, row.amax);
  return sum_of(x, q, dy, count, [&](FloatVector v, FloatVector code) HWY_ATTR {
    return lsq_share(v, code, scale, lower_end, amax);
  });
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(ClipSum);
HWY_EXPORT(LsqSum);

namespace cpu {

double clip_sum(const float* x, const float* dy, std::int64_t count, const detail::GridRow& row) {
  return HWY_DYNAMIC_DISPATCH(ClipSum)(x, dy, count, row);
}
double lsq_sum(const float* x, const float* q, const float* dy, std::int64_t count,
               const detail::GridRow& row) {
  return HWY_DYNAMIC_DISPATCH(LsqSum)(x, q, dy, count, row);
}

}  // namespace cpu
}  // namespace fq
#endif
