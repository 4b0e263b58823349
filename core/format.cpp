#include "fakequant/core/format.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/core.h>

#include "fakequant/core/detail/check.h"

namespace fq {
namespace {

/// The supported minifloats and the types of their codes. 6-bit codes (OCP MX) have no packed type: one per
/// byte, in the low bits.
constexpr std::pair<FloatFormat, DType> kFloats[] = {
    {{4, 3}, DType::f8_e4m3}, {{5, 2}, DType::f8_e5m2}, {{3, 2}, DType::u8},
    {{2, 3}, DType::u8},      {{2, 1}, DType::f4_e2m1},
};

const auto* find(FloatFormat format) {
  return std::ranges::find(kFloats, format, &std::pair<FloatFormat, DType>::first);
}

/// "(4,3), (5,2) or (2,1)"
std::string known_floats() {
  std::string out;
  for (const auto& [format, dtype] : kFloats)
    out += fmt::format("{}({},{})",
                       out.empty()                               ? ""
                       : &format == &std::rbegin(kFloats)->first ? " or "
                                                                 : ", ",
                       format.exponent, format.mantissa);
  return out;
}

}  // namespace

Format::Format(IntFormat format) : value_(format) {
  // 1 bit has no grid with a zero and both signs.
  FQ_CHECK(format.bits >= 2 && format.bits <= 16, "format", "{} bits are not an integer format: use 2 to 16",
           format.bits);
}

Format::Format(FloatFormat format) : value_(format) {
  FQ_CHECK(find(format) != std::end(kFloats), "format", "({},{}) is not a float format: use {}",
           format.exponent, format.mantissa, known_floats());
}

const IntFormat& Format::integer() const {
  FQ_CHECK(is_integer(), "format", "{} is not an integer format", to_string(*this));
  return std::get<IntFormat>(value_);
}

const FloatFormat& Format::floating() const {
  FQ_CHECK(!is_integer(), "format", "{} is not a float format", to_string(*this));
  return std::get<FloatFormat>(value_);
}

int Format::bits() const noexcept {
  if (const auto* integer = std::get_if<IntFormat>(&value_)) return integer->bits;
  const auto& f = std::get<FloatFormat>(value_);
  return 1 + f.exponent + f.mantissa;
}

float Format::bound() const noexcept {
  if (const auto* integer = std::get_if<IntFormat>(&value_)) return static_cast<float>(integer->upper());
  return std::get<FloatFormat>(value_).max();
}

float Format::lower() const noexcept {
  if (const auto* integer = std::get_if<IntFormat>(&value_)) return static_cast<float>(integer->lower());
  return -std::get<FloatFormat>(value_).max();
}

DType Format::code_dtype() const {
  if (const auto* f = std::get_if<FloatFormat>(&value_)) return find(*f)->second;
  const auto& integer = std::get<IntFormat>(value_);
  if (integer.bits <= 8) return integer.is_unsigned ? DType::u8 : DType::i8;
  // Codes of 16 unsigned bits exceed i16.
  return integer.is_unsigned && integer.bits == 16 ? DType::i32 : DType::i16;
}

std::string to_string(const Format& format) {
  if (!format.is_integer())
    return fmt::format("e{}m{}", format.floating().exponent, format.floating().mantissa);
  const auto& integer = format.integer();
  return fmt::format("{}int{}{}", integer.is_unsigned ? "u" : "", integer.bits,
                     integer.narrow_range ? " narrow" : "");
}

}  // namespace fq
