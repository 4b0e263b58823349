// Codes of any type as vectors of floats, and loops over whole arrays of them. Included inside of a source
// that goes through foreach_target.h, after vector-inl.h; not a public header. No pragma once for that
// reason.

#if defined(FQ_CODES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_CODES_INL_H
#undef FQ_CODES_INL_H
#else
#define FQ_CODES_INL_H
#endif

#include <algorithm>
#include <type_traits>

#include "fakequant/core/backend/cpu/codes/code_kernels.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"
//
#include "fakequant/core/backend/cpu/vector/groups-inl.h"
//
#include "fakequant/core/backend/cpu/vector/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

using IntTag = hn::RebindToSigned<FloatTag>;
template <class Code>
using CodeTag = hn::Rebind<Code, FloatTag>;

using cpu::E4m3;

FQ_HD FloatVector load_codes(const float* p) { return hn::LoadU(FloatTag(), p); }
FQ_HD FloatVector load_codes(const std::int32_t* p) {
  return hn::ConvertTo(FloatTag(), hn::LoadU(IntTag(), p));
}
template <class Code>
FQ_HD FloatVector load_codes(const Code* p) {
  return hn::ConvertTo(FloatTag(), hn::PromoteTo(IntTag(), hn::LoadU(CodeTag<Code>(), p)));
}
/// Exponent and mantissa at the same place of an f16 are the number times 2^-8, subnormals too.
FQ_HD FloatVector load_codes(const E4m3* p) {
  const ShortTag d;
  const auto bytes = hn::LoadU(CodeTag<std::uint8_t>(), reinterpret_cast<const std::uint8_t*>(p));
  const ShortVector code = hn::ShiftLeft<7>(hn::PromoteTo(d, bytes));
  const ShortVector number = hn::Add(code, hn::And(code, hn::Set(d, 0x4000)));  // the sign moved up
  const auto nan = hn::Eq(hn::And(code, hn::Set(d, 0x3f80)), hn::Set(d, 0x3f80));
  return mul_(widen_f16(hn::IfThenElse(nan, hn::Set(d, 0x7e00), number)), hn::Set(FloatTag(), 256.0f));
}

FQ_HD void store_codes(FloatVector values, std::int32_t* codes) {
  hn::StoreU(hn::ConvertTo(IntTag(), values), IntTag(), codes);
}
/// Of integers that fit: they are the low bits of their sum with 1.5 * 2^23.
template <class Code>
FQ_HD void store_codes(FloatVector values, Code* codes) {
  using Bits = std::make_unsigned_t<Code>;
  const WordVector words = hn::BitCast(WordTag(), add_(values, constant_(values, 0x1.8p23f)));
  hn::StoreU(hn::TruncateTo(CodeTag<Bits>(), words), CodeTag<Bits>(), reinterpret_cast<Bits*>(codes));
}
/// Of numbers of E4M3.
FQ_HD void store_codes(FloatVector values, E4m3* codes) {
  const ShortTag ds;
  const ShortVector half = narrow_f16(mul_(values, hn::Set(FloatTag(), 0x1p-8f)));
  const ShortVector sign = hn::And(hn::ShiftRight<8>(half), hn::Set(ds, 0x80));
  const ShortVector code = hn::Or(sign, hn::And(hn::ShiftRight<7>(half), hn::Set(ds, 0x7f)));
  hn::StoreU(hn::TruncateTo(CodeTag<std::uint8_t>(), code), CodeTag<std::uint8_t>(),
             reinterpret_cast<std::uint8_t*>(codes));
}

/// Codes of a byte each of minifloats without specials, or of E5M2: exponent and mantissa at the place that
/// they have in an f16 are the number divided by `unit`, subnormals too.
class MinifloatCodes {
 public:
  MinifloatCodes(int exponent, int mantissa, float min_normal)
      : low_(10 - mantissa),
        high_(15 - exponent - mantissa),
        unit_(hn::Set(FloatTag(), min_normal * 0x1p14f)),
        inverse_(hn::Set(FloatTag(), 1.0f / (min_normal * 0x1p14f))),
        magnitude_(hn::Set(ShortTag(), static_cast<std::uint16_t>((1u << (exponent + mantissa)) - 1u))),
        sign_(hn::Set(ShortTag(), static_cast<std::uint16_t>(1u << (exponent + mantissa)))) {}

  [[nodiscard]] FloatVector load(const std::uint8_t* p) const {
    const ShortVector code = hn::PromoteTo(ShortTag(), hn::LoadU(CodeTag<std::uint8_t>(), p));
    const ShortVector magnitude = hn::ShiftLeftSame(hn::And(code, magnitude_), low_);
    return mul_(widen_f16(hn::Or(magnitude, hn::ShiftLeftSame(hn::And(code, sign_), high_))), unit_);
  }
  /// Of numbers of the format.
  void store(FloatVector values, std::uint8_t* p) const {
    const ShortVector half = narrow_f16(mul_(values, inverse_));
    const ShortVector magnitude = hn::And(hn::ShiftRightSame(half, low_), magnitude_);
    const ShortVector code = hn::Or(magnitude, hn::And(hn::ShiftRightSame(half, high_), sign_));
    hn::StoreU(hn::TruncateTo(CodeTag<std::uint8_t>(), code), CodeTag<std::uint8_t>(), p);
  }

 private:
  int low_, high_;
  FloatVector unit_, inverse_;
  ShortVector magnitude_, sign_;
};

/// Calls f(pointer) with codes as what they are.
template <class F>
void visit_codes(const cpu::CodeArray& codes, F&& f) {
  switch (codes.dtype) {
    case DType::i8:
      return f(static_cast<const std::int8_t*>(codes.data));
    case DType::u8:
      return f(static_cast<const std::uint8_t*>(codes.data));
    case DType::i16:
      return f(static_cast<const std::int16_t*>(codes.data));
    case DType::i32:
      return f(static_cast<const std::int32_t*>(codes.data));
    default:
      return f(static_cast<const E4m3*>(codes.data));
  }
}

inline constexpr std::size_t kMostLanes = std::max<std::size_t>(HWY_MAX_BYTES / sizeof(float), 8);

/// Stands for the last elements of an array, fewer than a group.
template <class T>
struct Rest {
  T values[kMostLanes];

  void copy(const T* from, std::int64_t count) {
    std::fill_n(std::copy_n(from, count, values), kMostLanes - static_cast<std::size_t>(count), T{});
  }
};

/// The bits of `count` elements, fewer than a group; the others of the last byte become 0.
inline void copy_bits(std::uint8_t* bits, std::int64_t count, std::uint8_t* mask) {
  if (count % 8 != 0) bits[count / 8] = static_cast<std::uint8_t>(bits[count / 8] & ((1u << count % 8) - 1));
  std::copy_n(bits, (count + 7) / 8, mask);
}

/// step(a + i, b + i, y + i) -> mask for vectors of all `count` elements. `mask` begins on a byte and may be
/// null.
template <class A, class B, class Y, class Step>
HWY_INLINE void for_vectors(const A* a, const B* b, Y* y, std::uint8_t* mask, std::int64_t count,
                            Step&& step) {
  Rest<A> left;
  Rest<B> right;
  Rest<Y> out;
  std::uint8_t bits[kMostLanes / 8 + 8];
  const std::int64_t rest = count % group(), done = count - rest;
  for (int pass = rest == count ? 1 : 0; pass < (rest == 0 ? 1 : 2); ++pass) {
    const bool last = pass == 1;
    if (last) left.copy(a + done, rest);
    if (last) right.copy(b + done, rest);
    const A* p = last ? left.values : a;
    const B* q = last ? right.values : b;
    Y* to = last ? out.values : y;
    for_groups(last ? group() : done, last ? bits : mask,
               [&](std::int64_t i) HWY_ATTR { return step(p + i, q + i, to + i); });
    if (last) std::copy_n(out.values, rest, y + done);
    if (last && mask != nullptr) copy_bits(bits, rest, mask + done / 8);
  }
}

/// step(x + i, y + i) for vectors of all `count` elements.
template <class X, class Y, class Step>
HWY_INLINE void for_elements(const X* x, Y* y, std::int64_t count, Step&& step) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  const std::int64_t done = count / lanes * lanes;
  for (std::int64_t i = 0; i < done; i += lanes) step(x + i, y + i);
  if (done == count) return;
  Rest<X> last;
  Rest<Y> out;
  last.copy(x + done, count - done);
  step(last.values, out.values);
  std::copy_n(out.values, count - done, y + done);
}

/// y = fl(code * scale)
inline void decode_codes(const cpu::CodeArray& codes, std::int64_t count, FloatVector scale, float* y) {
  visit_codes(codes, [&](const auto* in) HWY_ATTR {
    for_elements(in, y, count, [&](const auto* p, float* out) HWY_ATTR {
      hn::StoreU(dequantize_code(load_codes(p), scale), FloatTag(), out);
    });
  });
}

/// The grid of whoever reads an accumulator.
struct SumReader {
  FloatVector lower, upper, below, amax;
  bool open;

  explicit SumReader(const fq::detail::SumReader& r)
      : lower(hn::Set(FloatTag(), r.lower)),
        upper(hn::Set(FloatTag(), r.upper)),
        below(hn::Set(FloatTag(), r.below)),
        amax(hn::Set(FloatTag(), r.amax)),
        open(r.open) {}
  FloatMask passes(FloatVector v) const {
    return open ? mask_open_below(v, below, amax) : mask_closed(v, below, amax);
  }
};

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
