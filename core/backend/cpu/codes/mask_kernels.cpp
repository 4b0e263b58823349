#include "fakequant/core/backend/cpu/codes/mask_kernels.h"

#include <cstring>

#include "fakequant/core/backend/cpu/vector/cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/codes/mask_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr std::int64_t kAhead = 2048;  // bytes fetched before they are needed

/// The mask of lanes from bit i on, i a multiple of the lanes.
template <class D>
hn::Mask<D> mask_at(D d, const std::uint8_t* mask, std::int64_t i) {
  if (hn::Lanes(d) >= 8) return hn::LoadMaskBits(d, mask + i / 8);
  const std::uint8_t bits[8] = {static_cast<std::uint8_t>(mask[i / 8] >> (i % 8))};
  return hn::LoadMaskBits(d, bits);
}

/// In place: of most masks all bits are set, and nothing is read or written for those.
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
      hn::StoreU(hn::IfThenElseZero(mask_at(d, mask, j), hn::LoadU(d, dx + j)), d, dx + j);
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
  if (stream && reinterpret_cast<std::uintptr_t>(dx) % (hn::Lanes(d) * sizeof(Word)) == 0) {
    for (std::int64_t i = 0; i < whole; i += lanes) {
      hwy::Prefetch(reinterpret_cast<const char*>(dy + i) + kAhead);
      hn::Stream(hn::IfThenElseZero(mask_at(d, mask, i), hn::LoadU(d, dy + i)), d, dx + i);
    }
  } else {
    for (std::int64_t i = 0; i < whole; i += lanes) {
      cpu::fetch_ahead(dy + i);
      cpu::fetch_ahead(dx + i);
      hn::StoreU(hn::IfThenElseZero(mask_at(d, mask, i), hn::LoadU(d, dy + i)), d, dx + i);
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
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(ApplyMask);

namespace cpu {

void apply_mask(const void* dy, const std::uint8_t* mask, std::int64_t count, int bytes, void* dx,
                bool beyond_cache) {
  HWY_DYNAMIC_DISPATCH(ApplyMask)(dy, mask, count, bytes, dx, beyond_cache);
}

}  // namespace cpu
}  // namespace fq
#endif
