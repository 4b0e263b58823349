#include "fakequant/core/backend/cpu/codes/gradient_kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "fakequant/core/backend/cpu/vector/cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/codes/gradient_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#include "fakequant/core/backend/cpu/vector/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
FQ_HD void put(ShortVector v, bfloat16* p) { store_short(v, p, false); }
FQ_HD void put(ShortVector v, float* p) { store(widen_bf16(v), p, false); }

// Scales dy by the weight scales of its channels and rounds it to bf16 for the backward products, which
// multiply it by exact codes.
template <bool sum, class Out>
void scale_run(const float* dy, std::int64_t count, const float* scale, Out* out, float* sums = nullptr) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    cpu::fetch_ahead(dy + i);
    cpu::fetch_ahead(out + i);
    const FloatVector v = load(dy + i);
    put(narrow_bf16(mul_(v, load(scale + i))), out + i);
    if constexpr (sum) store(add_(load(sums + i), v), sums + i, false);
  }
  for (; i < count; ++i) {
    // `sums` is the bias gradient. It takes the unscaled, unrounded dy.
    if constexpr (sum) sums[i] += dy[i];
    const bfloat16 rounded(dy[i] * scale[i]);
    if constexpr (sizeof(Out) == sizeof(bfloat16))
      out[i] = rounded;
    else
      out[i] = static_cast<float>(rounded);
  }
}

template <class Out>
void scale_runs(const float* dy, std::int64_t count, std::int64_t width, const float* scale, Out* out) {
  for (std::int64_t i = 0; i < count; i += width)
    scale_run<false>(dy + i, std::min(width, count - i), scale, out + i);
}

void ScaleToBf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale, bfloat16* out) {
  scale_runs(dy, count, width, scale, out);
}
void ScaleToRounded(const float* dy, std::int64_t count, std::int64_t width, const float* scale, float* out) {
  scale_runs(dy, count, width, scale, out);
}

void ScaleAndSum(const float* dy, std::int64_t count, const float* scale, bfloat16* out, float* sums) {
  scale_run<true>(dy, count, scale, out, sums);
}
void RoundAndSum(const float* dy, std::int64_t count, const float* scale, float* out, float* sums) {
  scale_run<true>(dy, count, scale, out, sums);
}

void ScaleAndAdd(float* y, std::int64_t count, std::int64_t width, const float* scale, const float* bias) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  for (std::int64_t run = 0; run < count; run += width, y += width) {
    const std::int64_t size = std::min(width, count - run);
    std::int64_t i = 0;
    for (; i + lanes <= size; i += lanes)
      store(scaled_product(load(y + i), load(scale + i), load(bias + i)), y + i, false);
    for (; i < size; ++i) y[i] = y[i] * scale[i] + bias[i];
  }
}

namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr std::int64_t kAhead = 2048;  // prefetch distance in bytes

/// Returns the mask of the lanes beginning with bit i, a multiple of the number of lanes.
template <class D>
hn::Mask<D> load_mask(D d, const std::uint8_t* mask, std::int64_t i) {
  // Vectors of fewer than 8 lanes share a byte of the mask.
  if (hn::Lanes(d) >= 8) return hn::LoadMaskBits(d, mask + i / 8);
  const std::uint8_t bits[8] = {static_cast<std::uint8_t>(mask[i / 8] >> (i % 8))};
  return hn::LoadMaskBits(d, bits);
}

/// Applies a mask in place. Most masks have all bits set; these need no reads or writes.
template <class Word>
void clear_others(Word* dx, const std::uint8_t* mask, std::int64_t count) {
  const hn::ScalableTag<Word> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t word = 64;
  std::int64_t i = 0;
  for (; i + word <= count; i += word) {
    std::uint64_t bits;
    std::memcpy(&bits, mask + i / 8, sizeof(bits));
    if (bits == ~std::uint64_t{0}) continue;
    for (std::int64_t j = i; j < i + word; j += lanes)
      hn::StoreU(hn::IfThenElseZero(load_mask(d, mask, j), hn::LoadU(d, dx + j)), d, dx + j);
  }
  for (; i < count; ++i)
    if (((mask[i / 8] >> (i % 8)) & 1u) == 0) dx[i] = Word{0};
}

template <class Word>
void masked(const Word* dy, const std::uint8_t* mask, std::int64_t count, Word* dx, bool stream) {
  const hn::ScalableTag<Word> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t whole = count / lanes * lanes;
  if (dx == dy) return clear_others(dx, mask, count);
  // Stores that bypass the cache avoid reading the lines of dx. They pay only beyond the last-level cache,
  // and require aligned addresses.
  if (stream && reinterpret_cast<std::uintptr_t>(dx) % (hn::Lanes(d) * sizeof(Word)) == 0) {
    for (std::int64_t i = 0; i < whole; i += lanes) {
      hwy::Prefetch(reinterpret_cast<const char*>(dy + i) + kAhead);
      hn::Stream(hn::IfThenElseZero(load_mask(d, mask, i), hn::LoadU(d, dy + i)), d, dx + i);
    }
  } else {
    for (std::int64_t i = 0; i < whole; i += lanes) {
      cpu::fetch_ahead(dy + i);
      cpu::fetch_ahead(dx + i);
      hn::StoreU(hn::IfThenElseZero(load_mask(d, mask, i), hn::LoadU(d, dy + i)), d, dx + i);
    }
  }
  for (std::int64_t i = whole; i < count; ++i) dx[i] = ((mask[i / 8] >> (i % 8)) & 1u) != 0 ? dy[i] : Word{0};
}

void ApplyMask(const void* dy, const std::uint8_t* mask, std::int64_t count, int bytes, void* dx,
               bool stream) {
  const auto as = [&]<class Word>(Word) {
    masked(static_cast<const Word*>(dy), mask, count, static_cast<Word*>(dx), stream);
  };
  if (bytes == 2) return as(std::uint16_t{});
  if (bytes == 4) return as(std::uint32_t{});
  as(std::uint64_t{});
}

}  // namespace

namespace {

using DoubleTag = hn::ScalableTag<double>;
using HalfTag = hn::Rebind<float, DoubleTag>;

constexpr std::int64_t kSums = cpu::share_lanes;

hn::Vec<DoubleTag> widened(const float* p) { return hn::PromoteTo(DoubleTag(), hn::LoadU(HalfTag(), p)); }

/// Adds kSums terms to their sums. term(i) returns the terms beginning with i, as doubles.
template <class Term>
HWY_INLINE void add_terms(double* sums, Term&& term) {
  const DoubleTag d;
  for (std::int64_t i = 0; i < kSums; i += static_cast<std::int64_t>(hn::Lanes(d)))
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), term(i)), d, sums + i);
}

/// Calls add(x, q, dy, sums) for kSums elements at a time. The last elements are padded with gradients of 0.
template <class Add>
void add_all(const float* x, const float* q, const float* dy, std::int64_t count, double* sums, Add&& add) {
  // A term of an element i is added to lane i % kSums for any vector width. The bits are therefore the same
  // on every processor.
  const std::int64_t whole = count / kSums * kSums;
  for (std::int64_t i = 0; i < whole; i += kSums) add(x + i, q + i, dy + i, sums);
  if (whole == count) return;
  // A gradient of 0 adds +0 or -0, which changes no sum that began at +0.
  float last[3][kSums] = {};
  std::copy(x + whole, x + count, last[0]);
  std::copy(q + whole, q + count, last[1]);
  std::copy(dy + whole, dy + count, last[2]);
  add(last[0], last[1], last[2], sums);
}

/// Adds clip shares. A share of -1, 0 or 1 times dy is exact before conversion to double.
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
      // The share is an f32 number. Its product with dy is exact in f64.
      hn::Store(lsq_share(hn::LoadU(d, v + i), hn::LoadU(d, c + i), scale, lower_end, amax), d, shares + i);
    add_terms(sums, [&](std::int64_t i) HWY_ATTR { return hn::Mul(widened(g + i), widened(shares + i)); });
  });
}

template <class Code>
std::int64_t find_end(const Code* codes, std::int64_t count, Code upper) {
  // 64 codes per test on every target, so that the returned positions do not depend on the vector width.
  const hn::CappedTag<Code, cpu::end_group> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Code lower = std::is_signed_v<Code> ? static_cast<Code>(-upper) : Code{0};
  const auto high = hn::Set(d, upper), low = hn::Set(d, lower);
  const auto inside = [&](const Code* p) HWY_ATTR {
    const auto v = hn::LoadU(d, p);
    if constexpr (std::is_signed_v<Code>) return hn::And(hn::Lt(v, high), hn::Lt(low, v));
    // clip_share is 0 at the lower end of unsigned codes.
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
HWY_EXPORT(ScaleToBf16);
HWY_EXPORT(ScaleToRounded);
HWY_EXPORT(ScaleAndSum);
HWY_EXPORT(RoundAndSum);
HWY_EXPORT(ScaleAndAdd);

namespace cpu {

void scale_to_bf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale,
                   bfloat16* out) {
  HWY_DYNAMIC_DISPATCH(ScaleToBf16)(dy, count, width, scale, out);
}
void scale_to_bf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale, float* out) {
  HWY_DYNAMIC_DISPATCH(ScaleToRounded)(dy, count, width, scale, out);
}

void scale_and_sum(const float* dy, std::int64_t count, const float* scale, bfloat16* out, float* sums) {
  HWY_DYNAMIC_DISPATCH(ScaleAndSum)(dy, count, scale, out, sums);
}
void scale_and_sum(const float* dy, std::int64_t count, const float* scale, float* out, float* sums) {
  HWY_DYNAMIC_DISPATCH(RoundAndSum)(dy, count, scale, out, sums);
}

void scale_and_add(float* y, std::int64_t count, std::int64_t width, const float* scale, const float* bias) {
  HWY_DYNAMIC_DISPATCH(ScaleAndAdd)(y, count, width, scale, bias);
}

}  // namespace cpu

HWY_EXPORT(ApplyMask);

namespace cpu {

void apply_mask(const void* dy, const std::uint8_t* mask, std::int64_t count, int bytes, void* dx,
                bool beyond_cache) {
  HWY_DYNAMIC_DISPATCH(ApplyMask)(dy, mask, count, bytes, dx, beyond_cache);
}

}  // namespace cpu

HWY_EXPORT(AddClipShares);
HWY_EXPORT(AddLsqShares);
HWY_EXPORT(FindEndI8);
HWY_EXPORT(FindEndU8);

namespace cpu {
namespace {

/// Sums lanes that begin at 0, and adds them in order.
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
