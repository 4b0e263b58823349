#include "fakequant/core/format.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "fakequant/core/check.h"

namespace fq {

float FloatFormat::max() const noexcept {
  const int bias = (1 << (exponent - 1)) - 1;
  if (exponent == 5 && mantissa == 2) return 57344.0f;  // IEEE-like: the top exponent is infinity and NaN
  if (exponent == 4 && mantissa == 3) return 448.0f;    // only the all-ones code is NaN
  const auto significand = 2.0f - std::ldexp(1.0f, -mantissa);
  return std::ldexp(significand, (1 << exponent) - 1 - bias);  // MX: no NaN at all
}

Format::Format(IntFormat format) : value_(format) {
  FQ_CHECK(format.bits >= 2 && format.bits <= 16, "format", "{} bits are not an integer format: use 2 to 16",
           format.bits);
}

Format::Format(FloatFormat format) : value_(format) {
  constexpr std::pair<int, int> known[] = {{4, 3}, {5, 2}, {3, 2}, {2, 3}, {2, 1}};
  FQ_CHECK(std::ranges::find(known, std::pair(format.exponent, format.mantissa)) != std::end(known), "format",
           "({},{}) is not a float format: use (4,3), (5,2), (3,2), (2,3) or (2,1)", format.exponent,
           format.mantissa);
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
  if (const auto* f = std::get_if<FloatFormat>(&value_)) {
    if (f->exponent == 5) return DType::f8_e5m2;
    if (f->exponent == 4) return DType::f8_e4m3;
    if (f->exponent + f->mantissa == 5) return DType::u8;
    return DType::f4_e2m1;
  }
  const auto& integer = std::get<IntFormat>(value_);
  if (integer.bits <= 8) return integer.is_unsigned ? DType::u8 : DType::i8;
  return integer.is_unsigned && integer.bits == 16 ? DType::i32 : DType::i16;
}

std::string to_string(const Format& format) {
  if (!format.is_integer())
    return fmt::format("e{}m{}", format.floating().exponent, format.floating().mantissa);
  const auto& integer = format.integer();
  return fmt::format("{}int{}{}", integer.is_unsigned ? "u" : "", integer.bits,
                     integer.narrow_range ? " narrow" : "");
}

Granularity Granularity::per_axis(std::vector<int> axes) {
  Granularity out;
  std::ranges::sort(axes);
  for (const int axis : axes) out.lengths_.emplace_back(axis, 1);
  return out;
}

Granularity Granularity::blocks(const std::map<int, std::int64_t>& lengths) {
  Granularity out;
  out.rest_ = 1;
  for (const auto& [axis, length] : lengths) {
    FQ_CHECK(length == whole || length > 0, "granularity",
             "a block of {} elements on axis {}: use 1 or more, or -1", length, axis);
    out.lengths_.emplace_back(axis, length);
  }
  return out;
}

Granularity Granularity::per_group(std::int64_t length, int axis) { return blocks({{axis, length}}); }

Granularity Granularity::blocks_2d(std::int64_t rows, std::int64_t columns) {
  return blocks({{-2, rows}, {-1, columns}});
}

Shape Granularity::block_shape(const Shape& tensor) const {
  Shape block(tensor.size(), rest_);
  for (const auto& [axis, length] : lengths_)
    block[static_cast<std::size_t>(normalize_axis(axis, static_cast<int>(tensor.size()), "granularity"))] =
        length;
  for (std::size_t i = 0; i < block.size(); ++i)
    if (block[i] == whole) block[i] = std::max<std::int64_t>(tensor[i], 1);
  return block;
}

Shape Granularity::scale_shape(const Shape& tensor) const {
  Shape out = block_shape(tensor);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = tensor[i] == 0 ? 0 : (tensor[i] - 1) / out[i] + 1;
  return out;
}

int Granularity::single_axis(int rank) const {
  if (lengths_.size() != 1 || rest_ != whole || lengths_[0].second != 1) return -1;
  return normalize_axis(lengths_[0].first, rank, "granularity");
}

std::string to_string(const Granularity& granularity) {
  if (granularity.is_per_tensor()) return "per tensor";
  std::vector<std::string> parts;
  for (const auto& [axis, length] : granularity.lengths_) {
    if (granularity.rest_ == Granularity::whole)
      parts.push_back(fmt::format("{}", axis));
    else if (length == Granularity::whole)
      parts.push_back(fmt::format("all of axis {}", axis));
    else
      parts.push_back(fmt::format("{} on axis {}", length, axis));
  }
  return fmt::format("{} {}", granularity.rest_ == 1 ? "in blocks of" : "per axis", fmt::join(parts, ", "));
}

}  // namespace fq
