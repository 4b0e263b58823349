#include "fakequant/core/backend/cpu/codes/element_kernels.h"

#include <bit>
#include <cstring>
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

// A range of up to 2^-24 (least_amax) counts as zero.
/// Integer codes. The codes of a range that has only zeros are 0.
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
    // For power-of-two scales x * (1 / scale) is exact, like the division, and faster.
    const FloatVector quotient = f.inverse ? mul_(v, scale) : div_(v, scale);
    return round_minifloat(quotient, f.max, f.min_normal, f.step);
  }
};

// Reads one number for all lanes if `shared`, else one number per lane.
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

/// Calls store(rounded numbers, i) for all elements, with 0 for NaN. Returns whether there was a NaN.
template <bool shared, class Round, class Store>
HWY_INLINE bool quantize_all(const float* x, const ElementNumbers& numbers, std::int64_t count,
                             bool is_unsigned, std::uint8_t* mask, const Round& round, Store&& store) {
  const FloatTag d;
  const auto none = hn::Zero(d);
  const Numbers<shared> scale(numbers.scale, numbers), amax(numbers.amax, numbers);
  // NaN is collected in a mask and tested once per call: a branch per vector would be slower.
  auto seen = hn::MaskFromVec(none);
  visit_groups(count, mask, [&](std::int64_t i) HWY_ATTR {
    cpu::fetch_ahead(x + i);
    const auto v = hn::LoadU(d, x + i), range = amax.at(i);
    const auto bad = is_nan_(v);
    seen = hn::Or(seen, bad);
    store(hn::IfThenZeroElse(bad, round(v, scale.at(i), range)), i);
    return mask_closed(v, is_unsigned ? none : hn::Neg(range), range);
  });
  return !hn::AllFalse(d, seen);
}

/// Packs E2M1 codes of quotients, two per byte. After adding 2, magnitudes up to 5 have bit patterns in the
/// same steps as their codes. 5 represents 6.
struct PairsOfE2m1 {
  std::uint8_t* packed;
  void operator()(FloatVector quotient, std::int64_t i) const {
    const FloatTag d;
    const auto two = hn::Set(d, 2.0f);
    // Adding 2 gives 2, 2.5, 3, 3.5, 4, 5, 6, 7 for the magnitudes 0, .5, 1, 1.5, 2, 3, 4 and 5. The upper
    // two mantissa bits and the exponent of these floats count from 0 to 7.
    const auto spread = add_(min_(round_magnitude(abs_(quotient), 6.0f, 1.0f, 0.5f), hn::Set(d, 5.0f)), two);
    const WordVector magnitude = hn::ShiftRight<21>(hn::Sub(words_(spread), words_(two)));
    store(signed_code(magnitude, quotient, 2, 1), i);
  }

 private:
  void store(WordVector codes, std::int64_t i) const {
// One lane: the low nibble comes first, then the high nibble is merged into the same byte.
#if HWY_TARGET == HWY_SCALAR
    const std::uint32_t before = i % 2 == 0 ? 0 : packed[i / 2], code = hn::GetLane(codes);
    packed[i / 2] = static_cast<std::uint8_t>(before | code << 4 * (i % 2));
#else
    const hn::RepartitionToWide<WordTag> wide;
    const hn::Rebind<std::uint8_t, decltype(wide)> bytes;
    const auto pairs = hn::BitCast(wide, codes);
    // A 64-bit pair has its second code at bit 32. Shifting by 28 moves it to bit 4.
    hn::StoreU(hn::TruncateTo(bytes, hn::Or(pairs, hn::ShiftRight<28>(pairs))), bytes, packed + i / 2);
#endif
  }
};

template <bool shared>
bool quantize_e2m1_scaled(const float* x, const ElementNumbers& numbers, std::int64_t count, bool inverse,
                          std::uint8_t* packed, std::uint8_t* mask) {
  const auto all = [&](auto&& quotient) HWY_ATTR {
    return quantize_all<shared>(x, numbers, count, false, mask, quotient, PairsOfE2m1{packed});
  };
  if (inverse)
    return all([](FloatVector v, FloatVector scale, FloatVector) HWY_ATTR { return mul_(v, scale); });
  return all([](FloatVector v, FloatVector scale, FloatVector) HWY_ATTR { return div_(v, scale); });
}
bool QuantizeE2m1(const float* x, const ElementNumbers& numbers, std::int64_t count, bool inverse,
                  std::uint8_t* packed, std::uint8_t* mask) {
  return numbers.index.shared() ? quantize_e2m1_scaled<true>(x, numbers, count, inverse, packed, mask)
                                : quantize_e2m1_scaled<false>(x, numbers, count, inverse, packed, mask);
}

template <bool shared>
bool quantize_scaled(const float* x, const ElementNumbers& numbers, std::int64_t count,
                     const ElementFormat& f, void* codes, std::uint8_t* mask) {
  const auto all = [&](const auto& round, auto&& store) HWY_ATTR {
    return quantize_all<shared>(x, numbers, count, f.is_unsigned, mask, round, store);
  };
  const auto integers = [&](auto* to) HWY_ATTR {
    return all(Integers(f), [to](FloatVector v, std::int64_t i) HWY_ATTR { store_codes(v, to + i); });
  };
  if (!f.integer) {
    // Minifloats of 8 bits or fewer have one byte per code here; the caller packs four-bit codes.
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
  return numbers.index.shared() ? quantize_scaled<true>(x, numbers, count, f, codes, mask)
                                : quantize_scaled<false>(x, numbers, count, f, codes, mask);
}

/// Decodes E2M1 codes, two per byte, with a table, if a vector has sixteen lanes.
class NumberTable {
 public:
  static constexpr bool there = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3;

  // Lane i shifts by 4 * (i % 8). Lanes 0 to 7 read the first eight codes, the others the second eight.
  explicit NumberTable(const MinifloatCodes& coder)
      : shifts_(hn::ShiftLeft<2>(hn::And(hn::Iota(WordTag(), 0), hn::Set(WordTag(), 7)))),
        first_(hn::FirstN(WordTag(), 8)) {
    std::uint8_t codes[16];
    std::iota(codes, codes + 16, std::uint8_t{0});
    numbers_ = coder.load(codes);
  }
  [[nodiscard]] FloatVector load_pairs(const std::uint8_t* p) const {
    const WordTag d;
    std::uint32_t eight[2];
    std::memcpy(eight, p, sizeof(eight));
    const auto all = hn::IfThenElse(first_, hn::Set(d, eight[0]), hn::Set(d, eight[1]));
    const auto codes = hn::BitCast(IntTag(), hn::And(hn::Shr(all, shifts_), hn::Set(d, 15)));
    return hn::TableLookupLanes(numbers_, hn::IndicesFromVec(FloatTag(), codes));
  }

 private:
  WordVector shifts_;
  hn::Mask<WordTag> first_;
  FloatVector numbers_;
};

template <bool shared, class Out>
void decode_scaled(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                   const ElementFormat& f, Out* y) {
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
  for (std::int64_t i = 0; i < count; i += lanes) write(coder.load(in + i), i);
}

template <class Out>
void decode_typed(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                  const ElementFormat& f, Out* y) {
  numbers.index.shared() ? decode_scaled<true>(codes, numbers, count, f, y)
                         : decode_scaled<false>(codes, numbers, count, f, y);
}
void DecodeElements(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                    const ElementFormat& f, float* y) {
  decode_typed(codes, numbers, count, f, y);
}
void DecodeToBf16(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                  const ElementFormat& f, bfloat16* y) {
  decode_typed(codes, numbers, count, f, y);
}

// The two bytes of a pair are one 16-bit number: its upper byte moves down by 4 into the upper nibble.
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

/// Returns whether bf16 represents E2M1 numbers times the scales exactly.
bool scales_are_short(const ElementNumbers& numbers, std::int64_t count) {
  const std::int64_t begin = numbers.index.at(numbers.first),
                     end = numbers.index.at(numbers.first + count - 1) + 1;
  std::uint32_t bits = 0;
  for (std::int64_t i = begin; i < end; ++i) bits |= std::bit_cast<std::uint32_t>(numbers.scale[i]);
  // The low 18 bits of the mantissa are 0, so the scale has at most 6 significant bits. Its product with a
  // number of E2M1, which has 2, fits into the 8 bits of bf16. The power-of-two scales of MXFP4 are of this
  // kind.
  return (bits & 0x3ffffu) == 0;
}

FQ_HD void store_exact(FloatVector v, float* y) { store(v, y, false); }
// Truncation suffices where rounding would change nothing.
FQ_HD void store_exact(FloatVector v, bfloat16* y) {
  store_short(hn::TruncateTo(ShortTag(), hn::ShiftRight<16>(word_bits(v))), y, false);
}

template <bool shared, bool exact, class Out>
void decode_e2m1_scaled(const std::uint8_t* packed, const ElementNumbers& numbers, std::int64_t count,
                        Out* y) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  const Numbers<shared> scale(numbers.scale, numbers);
  // E2M1: 2 exponent bits, 1 mantissa bit, and 1 as the smallest normal number.
  const MinifloatCodes coder(2, 1, 1.0f);
  const auto write = [&](FloatVector number, std::int64_t i) HWY_ATTR {
    const FloatVector v = dequantize_code(number, scale.at(i));
    cpu::fetch_ahead(y + i);
    exact ? store_exact(v, y + i) : store(v, y + i, false);
  };
  if constexpr (NumberTable::there) {
    const NumberTable table(coder);
    for (std::int64_t i = 0; i < count; i += lanes) write(table.load_pairs(packed + i / 2), i);
    return;
  }
  std::uint8_t codes[cpu::element_group];
  for (std::int64_t i = 0; i < count; i += cpu::element_group) {
    UnpackNibbles(packed + i / 2, cpu::element_group, codes);
    for (std::int64_t j = 0; j < cpu::element_group; j += lanes) write(coder.load(codes + j), i + j);
  }
}
template <class Out>
void decode_e2m1_typed(const std::uint8_t* packed, const ElementNumbers& numbers, std::int64_t count,
                       Out* y) {
  if (!numbers.index.shared()) return decode_e2m1_scaled<false, false>(packed, numbers, count, y);
  scales_are_short(numbers, count) ? decode_e2m1_scaled<true, true>(packed, numbers, count, y)
                                   : decode_e2m1_scaled<true, false>(packed, numbers, count, y);
}
void DecodeE2m1(const std::uint8_t* packed, const ElementNumbers& numbers, std::int64_t count, float* y) {
  decode_e2m1_typed(packed, numbers, count, y);
}
void DecodeE2m1ToBf16(const std::uint8_t* packed, const ElementNumbers& numbers, std::int64_t count,
                      bfloat16* y) {
  decode_e2m1_typed(packed, numbers, count, y);
}

}  // namespace
}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(QuantizeElements);
HWY_EXPORT(QuantizeE2m1);
HWY_EXPORT(DecodeElements);
HWY_EXPORT(DecodeToBf16);
HWY_EXPORT(DecodeE2m1);
HWY_EXPORT(DecodeE2m1ToBf16);
HWY_EXPORT(PackNibbles);
HWY_EXPORT(UnpackNibbles);

namespace cpu {

bool quantize_elements(const float* x, const ElementNumbers& numbers, std::int64_t count,
                       const ElementFormat& format, void* codes, std::uint8_t* mask) {
  return HWY_DYNAMIC_DISPATCH(QuantizeElements)(x, numbers, count, format, codes, mask);
}
bool quantize_e2m1(const float* x, const ElementNumbers& numbers, std::int64_t count, bool inverse,
                   std::uint8_t* packed, std::uint8_t* mask) {
  return HWY_DYNAMIC_DISPATCH(QuantizeE2m1)(x, numbers, count, inverse, packed, mask);
}
void decode_elements(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                     const ElementFormat& format, float* y) {
  HWY_DYNAMIC_DISPATCH(DecodeElements)(codes, numbers, count, format, y);
}
void decode_elements(const void* codes, const ElementNumbers& numbers, std::int64_t count,
                     const ElementFormat& format, bfloat16* y) {
  HWY_DYNAMIC_DISPATCH(DecodeToBf16)(codes, numbers, count, format, y);
}
void decode_e2m1(const std::uint8_t* packed, const ElementNumbers& numbers, std::int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(DecodeE2m1)(packed, numbers, count, y);
}
void decode_e2m1(const std::uint8_t* packed, const ElementNumbers& numbers, std::int64_t count, bfloat16* y) {
  HWY_DYNAMIC_DISPATCH(DecodeE2m1ToBf16)(packed, numbers, count, y);
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
