#include "fakequant/reference/detail/torchao_grid.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/detail/rounding.h"
#include "fakequant/reference/torchao.h"

namespace fq::torchao {
namespace {

using detail::AffineRow;
using detail::promoted;
using detail::rounded_to;

std::vector<float> values_of(const Tensor& t, std::int64_t count, const char* what, const char* function) {
  FQ_CHECK(t.numel() == count, function, "the {} is {} for {} blocks: give one element for each", what,
           to_string(t.shape()), count);
  return t.to(DType::f32).to_vector<float>();
}

void check_zero_point(const Parameters& p, bool strict, const char* function) {
  const bool given = p.zero_point.defined();
  FQ_CHECK(!given || p.domain != ZeroPointDomain::none, function,
           "a zero point is given and its domain is NONE: leave one of the two out");
  FQ_CHECK(given || p.domain == ZeroPointDomain::none || !strict, function,
           "the zero point is missing: give one for each scale, or the domain NONE");
  if (given && is_floating(p.zero_point.dtype())) check_float(p.zero_point.dtype(), "zero point", function);
}

}  // namespace

void check_float(DType dtype, const char* what, const char* function) {
  FQ_CHECK(is_floating(dtype) && dtype != DType::f64, function, "the {} is {}: give f32, f16 or bf16", what,
           name(dtype));
}

Codes Codes::of(IntegerType type, const CodeRange& range, const char* function) {
  const std::int64_t lower = range.quant_min.value_or(type.lower()),
                     upper = range.quant_max.value_or(type.upper());
  FQ_CHECK(lower >= type.lower() && upper <= type.upper(), function,
           "quant_min {} and quant_max {} are out of {}: stay within {} to {}", lower, upper, type.name(),
           type.lower(), type.upper());
  return {static_cast<float>(lower), static_cast<float>(upper), static_cast<float>(upper + lower + 1) / 2};
}

Grid make_grid(const Shape& shape, DType dtype, const Parameters& p, const Codes& codes, bool strict,
               const char* function) {
  check_float(p.scale.dtype(), "scale", function);
  check_zero_point(p, strict, function);
  const std::int64_t count = numel(scale_shape(shape, p.block_size, function));
  const bool given = p.zero_point.defined(), floating = p.domain == ZeroPointDomain::floating;
  const DType scale_type = p.scale.dtype(), zero_type = given ? p.zero_point.dtype() : scale_type;
  const DType product = promoted(dtype, scale_type), base = promoted(scale_type, zero_type);
  Grid grid{p.block_size, {}, codes, floating, floating ? promoted(dtype, base) : product};
  FQ_CHECK(!strict || grid.steps != DType::f16 || (codes.lower >= -65504.0f && codes.upper <= 65504.0f),
           function,
           "codes of {} to {} are beyond f16, in which they are found: use an f32 scale, or fewer bits",
           codes.lower, codes.upper);
  if (p.scale.device().is_meta()) return grid;
  const auto scales = values_of(p.scale, count, "scale", function);
  const auto zeros = given ? values_of(p.zero_point, count, "zero point", function) : std::vector<float>();
  grid.rows.resize(scales.size());
  for (std::size_t i = 0; i < scales.size(); ++i) {
    AffineRow& row = grid.rows[i];
    row.scale = scales[i];
    row.reciprocal = rounded_to(scale_type, 1.0f / scales[i]);
    // Adding -0 changes nothing, not even the sign of a zero.
    row.entry = !given     ? -0.0f
                : floating ? rounded_to(base, zeros[i] - rounded_to(scale_type, scales[i] * codes.middle))
                           : rounded_to(product, zeros[i]);
    row.exit = given ? floating ? zeros[i] : rounded_to(dtype, zeros[i]) : floating ? -0.0f : 0.0f;
  }
  return grid;
}

}  // namespace fq::torchao
