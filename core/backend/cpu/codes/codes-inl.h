// Codes of any type as vectors of floats, and loops over whole arrays of codes. Include in a source that uses
// foreach_target.h, after vector-inl.h; not a public header. Included once for each target, hence no pragma
// once.

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
/// Reads the exponent and mantissa in the bit positions of an f16, which gives the number times 2^-8,
/// including subnormals.
FQ_HD FloatVector load_codes(const E4m3* p) {
  const ShortTag d;
  const auto bytes = hn::LoadU(CodeTag<std::uint8_t>(), reinterpret_cast<const std::uint8_t*>(p));
  const ShortVector code = hn::ShiftLeft<7>(hn::PromoteTo(d, bytes));
  const ShortVector number = hn::Add(code, hn::And(code, hn::Set(d, 0x4000)));  // moves the sign up
  const auto nan = hn::Eq(hn::And(code, hn::Set(d, 0x3f80)), hn::Set(d, 0x3f80));
  return mul_(widen_f16(hn::IfThenElse(nan, hn::Set(d, 0x7e00), number)), hn::Set(FloatTag(), 256.0f));
}

FQ_HD void store_codes(FloatVector values, std::int32_t* codes) {
  hn::StoreU(hn::ConvertTo(IntTag(), values), IntTag(), codes);
}
/// Stores integers that fit: their sum with 1.5 * 2^23 has them in its low bits.
template <class Code>
FQ_HD void store_codes(FloatVector values, Code* codes) {
  using Bits = std::make_unsigned_t<Code>;
  const WordVector words = hn::BitCast(WordTag(), add_(values, constant_(values, 0x1.8p23f)));
  hn::StoreU(hn::TruncateTo(CodeTag<Bits>(), words), CodeTag<Bits>(), reinterpret_cast<Bits*>(codes));
}
/// Stores numbers that E4M3 represents exactly.
FQ_HD void store_codes(FloatVector values, E4m3* codes) {
  const ShortTag ds;
  const ShortVector half = narrow_f16(mul_(values, hn::Set(FloatTag(), 0x1p-8f)));
  const ShortVector sign = hn::And(hn::ShiftRight<8>(half), hn::Set(ds, 0x80));
  const ShortVector code = hn::Or(sign, hn::And(hn::ShiftRight<7>(half), hn::Set(ds, 0x7f)));
  hn::StoreU(hn::TruncateTo(CodeTag<std::uint8_t>(), code), CodeTag<std::uint8_t>(),
             reinterpret_cast<std::uint8_t*>(codes));
}

/// One-byte codes of minifloats without special values, or of E5M2. Exponent and mantissa in the bit
/// positions of an f16 give the number divided by `unit`, including subnormals.
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
  /// Stores numbers that the format represents exactly.
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

/// Calls f(pointer) with the codes in their own type.
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

/// Buffer for the last elements of an array, fewer than a group.
template <class T>
struct Rest {
  T values[kMostLanes];

  void copy(const T* from, std::int64_t count) {
    std::fill_n(std::copy_n(from, count, values), kMostLanes - static_cast<std::size_t>(count), T{});
  }
};

/// Copies the bits of `count` elements, fewer than a group. The remaining bits of the last byte become 0.
inline void copy_bits(std::uint8_t* bits, std::int64_t count, std::uint8_t* mask) {
  if (count % 8 != 0) bits[count / 8] = static_cast<std::uint8_t>(bits[count / 8] & ((1u << count % 8) - 1));
  std::copy_n(bits, (count + 7) / 8, mask);
}

/// Sets the mask to step(a + i, b + i, y + i) for vectors that cover all `count` elements. `mask` begins on a
/// byte and may be null.
template <class A, class B, class Y, class Step>
HWY_INLINE void visit_vectors(const A* a, const B* b, Y* y, std::uint8_t* mask, std::int64_t count,
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
    visit_groups(last ? group() : done, last ? bits : mask,
                 [&](std::int64_t i) HWY_ATTR { return step(p + i, q + i, to + i); });
    if (last) std::copy_n(out.values, rest, y + done);
    if (last && mask != nullptr) copy_bits(bits, rest, mask + done / 8);
  }
}

/// Calls step(x + i, y + i) for vectors that cover all `count` elements.
template <class X, class Y, class Step>
HWY_INLINE void visit_elements(const X* x, Y* y, std::int64_t count, Step&& step) {
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

/// Computes y = fl(code * scale).
inline void decode_codes(const cpu::CodeArray& codes, std::int64_t count, FloatVector scale, float* y) {
  visit_codes(codes, [&](const auto* in) HWY_ATTR {
    visit_elements(in, y, count, [&](const auto* p, float* out) HWY_ATTR {
      hn::StoreU(dequantize_code(load_codes(p), scale), FloatTag(), out);
    });
  });
}

/// The grid for reading an accumulator.
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
    return open ? mask_open_lower(v, below, amax) : mask_closed(v, below, amax);
  }
};

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
