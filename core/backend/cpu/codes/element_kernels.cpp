#include "fakequant/core/backend/cpu/codes/element_kernels.h"

#include <numeric>

#include "fakequant/core/backend/cpu/vector/cache.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/codes/element_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/vector-inl.h"
//
#include "fakequant/core/backend/cpu/codes/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {
namespace {

using cpu::ElementFormat;
using cpu::ElementNumbers;

/// Codes of integers: those of a range of zeros only are 0.
struct Integers {
  FloatVector lower, upper, least, none;
  explicit Integers(const ElementFormat& f)
      : lower(hn::Set(FloatTag(), f.lower)),
        upper(hn::Set(FloatTag(), f.bound)),
        least(hn::Set(FloatTag(), detail::least_amax)),
        none(hn::Zero(FloatTag())) {}
  FloatVector operator()(FloatVector v, FloatVector scale, FloatVector amax) const {
    return select_(less_equal_(amax, least), none, quantize_code(v, scale, lower, upper));
  }
};

struct Floats {
  const ElementFormat& f;
  explicit Floats(const ElementFormat& format) : f(format) {}
  FloatVector operator()(FloatVector v, FloatVector scale, FloatVector) const {
    const FloatVector quotient = f.inverse ? mul_(v, scale) : div_(v, scale);
    return round_minifloat(quotient, f.max, f.min_normal, f.step);
  }
};

template <bool shared>
struct Numbers {
  const float* numbers;
  std::int64_t first;
  fq::detail::NumberIndex index;
  Numbers(const float* all, const ElementNumbers& n) : numbers(all), first(n.first), index(n.index) {}
  FloatVector at(std::int64_t i) const {
    const float* from = numbers + index.at(first + i);
    if constexpr (shared) return hn::Set(FloatTag(), *from);
    return hn::LoadU(FloatTag(), from);
  }
};

/// store(rounded numbers, i) for all elements; 0 for a NaN.
template <bool shared, class Round, class Store>
HWY_INLINE bool quantize_all(const float* x, const ElementNumbers& numbers, std::int64_t count,
                             bool is_unsigned, std::uint8_t* mask, const Round& round, Store&& store) {
  const FloatTag d;
  const auto none = hn::Zero(d);
  const Numbers<shared> scale(numbers.scale, numbers), amax(numbers.amax, numbers);
  auto seen = hn::MaskFromVec(none);
  for_groups(count, mask, [&](std::int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, x + i), range = amax.at(i);
    const auto bad = is_nan_(v);
    seen = hn::Or(seen, bad);
    store(hn::IfThenZeroElse(bad, round(v, scale.at(i), range)), i);
    return mask_closed(v, is_unsigned ? none : hn::Neg(range), range);
  });
  return !hn::AllFalse(d, seen);
}

template <bool shared>
bool quantize_with(const float* x, const ElementNumbers& numbers, std::int64_t count, const ElementFormat& f,
                   void* codes, std::uint8_t* mask) {
  const auto all = [&](const auto& round, auto&& store) HWY_ATTR {
    return quantize_all<shared>(x, numbers, count, f.is_unsigned, mask, round, store);
  };
  const auto integers = [&](auto* to) HWY_ATTR {
    return all(Integers(f), [to](FloatVector v, std::int64_t i) HWY_ATTR { store_codes(v, to + i); });
  };
  if (!f.integer) {
    const MinifloatCodes coder(f.exponent, f.mantissa, f.min_normal);
    auto* to = static_cast<std::uint8_t*>(codes);
    return all(Floats(f), [&coder, to](FloatVector v, std::int64_t i) HWY_ATTR { coder.store(v, to + i); });
  }
  switch (f.dtype) {
    case DType::i8:
      return integers(static_cast<std::int8_t*>(codes));
    case DType::u8:
      return integers(static_cast<std::uint8_t*>(codes));
    case DType::i16:
      return integers(static_cast<std::int16_t*>(codes));
    default:
      return integers(static_cast<std::int32_t*>(codes));
  }
}

bool QuantizeElements(const float* x, const ElementNumbers& numbers, std::int64_t count,
                      const ElementFormat& f, void* codes, std::uint8_t* mask) {
  return numbers.index.shared() ? quantize_with<true>(x, numbers, count, f, codes, mask)
                                : quantize_with<false>(x, numbers, count, f, codes, mask);
}

/// The numbers of codes of four bits, where a vector has sixteen lanes.
class NumberTable {
 public:
  static constexpr bool there = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3;

  explicit NumberTable(const MinifloatCodes& coder) {
    std::uint8_t codes[16];
    std::iota(codes, codes + 16, std::uint8_t{0});
    numbers_ = coder.load(codes);
  }
  [[nodiscard]] FloatVector load(const std::uint8_t* p) const {
    const auto codes = hn::PromoteTo(IntTag(), hn::LoadU(CodeTag<std::uint8_t>(), p));
    return hn::TableLookupLanes(numbers_, hn::IndicesFromVec(FloatTag(), codes));
  }

 private:
  FloatVector numbers_;
};

template <bool shared, class Out>
void decode_with(const void* codes, const ElementNumbers& numbers, std::int64_t count, const ElementFormat& f,
                 Out* y) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  const Numbers<shared> scale(numbers.scale, numbers);
  const auto write = [&](FloatVector v, std::int64_t i) HWY_ATTR {
    cpu::fetch_ahead(y + i);
    store(dequantize_code(v, scale.at(i)), y + i, false);
  };
  if (f.integer || f.dtype == DType::f8_e4m3) {
    visit_codes({codes, f.dtype}, [&](const auto* in) HWY_ATTR {
      for (std::int64_t i = 0; i < count; i += lanes) write(load_codes(in + i), i);
    });
    return;
  }
  const MinifloatCodes coder(f.exponent, f.mantissa, f.min_normal);
  const auto* in = static_cast<const std::uint8_t*>(codes);
  if constexpr (NumberTable::there) {
    if (f.exponent + f.mantissa == 3) {
      const NumberTable table(coder);
      for (std::int64_t i = 0; i < count; i += lanes) write(table.load(in + i), i);
      return;
    }
  }
  for (std::int64_t i = 0; i < count; i += lanes) write(coder.load(in + i), i);
}

template <class Out>
void decode_as(const void* codes, const ElementNumbers& numbers, std::int64_t count, const ElementFormat& f,
               Out* y) {
  numbers.index.shared() ? decode_with<true>(codes, numbers, count, f, y)
                         : decode_with<false>(codes, numbers, count, f, y);
}
void DecodeElements(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                    const ElementFormat& f, float* y) {
  decode_as(codes, numbers, count, f, y);
}
void DecodeToBf16(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                  const ElementFormat& f, bfloat16* y) {
  decode_as(codes, numbers, count, f, y);
}

void PackNibbles(const std::uint8_t* codes, std::int64_t count, std::uint8_t* packed) {
  const hn::ScalableTag<std::uint16_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count / 2; i += lanes) {
    const auto pairs = hn::LoadU(d, reinterpret_cast<const std::uint16_t*>(codes + 2 * i));
    hn::StoreU(hn::TruncateTo(bytes, hn::Or(pairs, hn::ShiftRight<4>(pairs))), bytes, packed + i);
  }
}

void UnpackNibbles(const std::uint8_t* packed, std::int64_t count, std::uint8_t* codes) {
  const hn::ScalableTag<std::uint16_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count / 2; i += lanes) {
    const auto both = hn::PromoteTo(d, hn::LoadU(bytes, packed + i));
    const auto pairs = hn::And(hn::Or(both, hn::ShiftLeft<4>(both)), hn::Set(d, 0x0f0f));
    hn::StoreU(pairs, d, reinterpret_cast<std::uint16_t*>(codes + 2 * i));
  }
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(QuantizeElements);
HWY_EXPORT(DecodeElements);
HWY_EXPORT(DecodeToBf16);
HWY_EXPORT(PackNibbles);
HWY_EXPORT(UnpackNibbles);

namespace cpu {

bool quantize_elements(const float* x, const ElementNumbers& numbers, std::int64_t count,
                       const ElementFormat& format, void* codes, std::uint8_t* mask) {
  return HWY_DYNAMIC_DISPATCH(QuantizeElements)(x, numbers, count, format, codes, mask);
}
void decode_elements(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                     const ElementFormat& format, float* y) {
  HWY_DYNAMIC_DISPATCH(DecodeElements)(codes, numbers, count, format, y);
}
void decode_elements(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                     const ElementFormat& format, bfloat16* y) {
  HWY_DYNAMIC_DISPATCH(DecodeToBf16)(codes, numbers, count, format, y);
}
void pack_nibbles(const std::uint8_t* codes, std::int64_t count, std::uint8_t* packed) {
  HWY_DYNAMIC_DISPATCH(PackNibbles)(codes, count, packed);
}
void unpack_nibbles(const std::uint8_t* packed, std::int64_t count, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(UnpackNibbles)(packed, count, codes);
}

}  // namespace cpu
}  // namespace fq
#endif
