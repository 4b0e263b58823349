#include "compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace fq::golden {
namespace {

/// Elements as bit patterns of one type, "f32", "i8", "float8_e4m3fn", "float4_e2m1" ..
struct Elements {
  std::string type;
  Shape shape;
  std::vector<std::uint64_t> bits;
};

std::string element_type(const Value& value) {
  if (value.dtype.empty() || value.dtype == "bfloat16") return std::string(name(value.tensor.dtype()));
  return value.dtype;
}

std::uint64_t element_bits(const Tensor& t, std::int64_t i) {
  const int width = bit_width(t.dtype());
  const auto* bytes = static_cast<const std::uint8_t*>(t.raw());
  if (width < 8) {
    const std::int64_t bit = i * width;
    return (static_cast<std::uint64_t>(bytes[bit / 8]) >> (bit % 8)) & ((1u << width) - 1u);
  }
  std::uint64_t out = 0;
  for (int b = 0; b < width / 8; ++b)
    out |= static_cast<std::uint64_t>(bytes[i * (width / 8) + b]) << (8 * b);
  return out;
}

std::vector<std::uint64_t> all_bits(const Tensor& t) {
  std::vector<std::uint64_t> out(static_cast<std::size_t>(t.numel()));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = element_bits(t, static_cast<std::int64_t>(i));
  return out;
}

/// The result in the form of `expected`: codes one a byte, or packed bytes, where the file has those.
Elements convert_form(const Value& expected, const Tensor& got) {
  const Tensor t = got.to(Device::cpu()).to(Layout::row_major);
  const std::string expected_type = element_type(expected);
  Elements out{std::string(name(t.dtype())), t.shape(), {}};
  const auto relabel = [&](DType ours, std::string_view theirs) {
    if (t.dtype() == ours && expected_type == theirs) out.type = expected_type;
  };
  relabel(DType::f8_e4m3, "float8_e4m3fn");
  relabel(DType::f8_e5m2, "float8_e5m2");
  relabel(DType::f8_e8m0, "float8_e8m0fnu");
  relabel(DType::f4_e2m1, "float4_e2m1");
  relabel(DType::u1, "bool");
  relabel(DType::u4, "u8");
  relabel(DType::u2, "u8");
  if (t.dtype() == DType::u8 && expected.tensor.dtype() == DType::u8) out.type = expected_type;
  if (t.dtype() == DType::f4_e2m1 && expected_type == "e2m1x2_low_first" && !t.shape().empty() &&
      t.shape().back() % 2 == 0) {
    out.type = expected_type;
    out.shape.back() /= 2;
    const auto* bytes = static_cast<const std::uint8_t*>(t.raw());
    out.bits.assign(bytes, bytes + t.nbytes());
    return out;
  }
  out.bits = all_bits(t);
  if ((t.dtype() == DType::i4 || t.dtype() == DType::i2) && expected_type == "i8") {
    const std::uint64_t sign = std::uint64_t{1} << (bit_width(t.dtype()) - 1);
    out.type = expected_type;
    for (auto& code : out.bits) code = ((code ^ sign) - sign) & 0xffu;
  }
  return out;
}

bool is_nan(const std::string& type, std::uint64_t bits) {
  if (type == "f32") return (bits & 0x7fffffffu) > 0x7f800000u;
  if (type == "f64") return (bits & ~(std::uint64_t{1} << 63)) > 0x7ff0000000000000u;
  if (type == "f16") return (bits & 0x7fffu) > 0x7c00u;
  if (type == "bf16") return (bits & 0x7fffu) > 0x7f80u;
  if (type == "float8_e4m3fn") return (bits & 0x7fu) == 0x7fu;
  if (type == "float8_e5m2") return (bits & 0x7fu) > 0x7cu;
  return type == "float8_e8m0fnu" && bits == 0xffu;
}

bool is_float(const std::string& type) {
  return type == "f32" || type == "f64" || type == "f16" || type == "bf16";
}

double element_value(const std::string& type, std::uint64_t bits) {
  if (type == "f32") return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  if (type == "f64") return std::bit_cast<double>(bits);
  if (type == "f16") return static_cast<float>(std::bit_cast<float16>(static_cast<std::uint16_t>(bits)));
  if (type == "bf16") return static_cast<float>(std::bit_cast<bfloat16>(static_cast<std::uint16_t>(bits)));
  const int width = std::atoi(type.c_str() + 1);
  if (type[0] != 'i' || width == 0) return static_cast<double>(bits);  // "int4x2_low_first" is bytes
  const int unused = 64 - width;
  return static_cast<double>(static_cast<std::int64_t>(bits << unused) >> unused);
}

std::string format_element(const std::string& type, std::uint64_t bits) {
  if (is_float(type)) return fmt::format("{:.9g} ({:#x})", element_value(type, bits), bits);
  return type[0] == 'i' || type[0] == 'u' ? fmt::format("{}", element_value(type, bits))
                                          : fmt::format("code {:#04x}", bits);
}

/// Distance in units in the last place: bit patterns in the order of their values.
double ulps(const std::string& type, std::uint64_t a, std::uint64_t b) {
  const int width = type == "f64" ? 64 : type == "f32" ? 32 : 16;
  const std::uint64_t sign = std::uint64_t{1} << (width - 1);
  const auto ordered = [&](std::uint64_t bits) {
    const auto magnitude = static_cast<double>(bits & (sign - 1));
    return (bits & sign) != 0 ? -magnitude : magnitude;
  };
  return std::fabs(ordered(a) - ordered(b));
}

/// `most` is the largest tolerance of "abs" and "rel".
bool agree(const std::string& type, std::uint64_t expected, std::uint64_t got, const std::string& rule,
           double most) {
  if (expected == got || (is_nan(type, expected) && is_nan(type, got))) return true;
  if (rule == "bits") return false;
  const double tolerance = std::strtod(rule.c_str() + rule.find(':') + 1, nullptr);
  if (rule.starts_with("ulp:")) return is_float(type) && ulps(type, expected, got) <= tolerance;
  const double a = element_value(type, expected), b = element_value(type, got);
  return std::fabs(a - b) <= std::min(most, rule.starts_with("rel:") ? tolerance * std::fabs(a) : tolerance);
}

double largest_element(const std::string& type, const std::vector<std::uint64_t>& elements) {
  double largest = 0;
  for (const auto bits : elements)
    if (const double v = std::fabs(element_value(type, bits)); std::isfinite(v))
      largest = std::max(largest, v);
  return largest;
}

bool is_rule(const std::string& rule) {
  return rule == "bits" || rule.starts_with("abs:") || rule.starts_with("rel:") || rule.starts_with("ulp:");
}

}  // namespace

std::optional<std::string> difference(const Value& expected, const Tensor& got, const std::string& rule,
                                      double widest) {
  if (!got.defined()) return "was not computed";
  if (!is_rule(rule)) return fmt::format("has the unknown comparison '{}'", rule);
  const Elements b = convert_form(expected, got);
  const std::string type = element_type(expected);
  if (rule != "bits" && type != b.type && is_float(type) && is_float(b.type))
    return difference(expected, got.to(expected.tensor.dtype()), rule, widest);
  if (type != b.type) return fmt::format("is {}, expected {}", b.type, type);
  if (expected.tensor.shape() != b.shape)
    return fmt::format("has shape {}, expected {}", to_string(b.shape), to_string(expected.tensor.shape()));
  const auto a = all_bits(expected.tensor);
  const double most = widest * largest_element(type, a);
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!agree(type, a[i], b.bits[i], rule, most))
      return fmt::format("[{}]: expected {}, got {}", i, format_element(type, a[i]),
                         format_element(type, b.bits[i]));
  return std::nullopt;
}

}  // namespace fq::golden
