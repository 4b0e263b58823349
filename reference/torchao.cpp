#include "fakequant/reference/torchao.h"

#include <charconv>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/detail/rounding.h"
#include "fakequant/reference/detail/torchao_grid.h"

namespace fq::torchao {

IntegerType IntegerType::named(std::string_view name) {
  IntegerType type{0, name.starts_with('u')};
  const std::string_view stem = type.is_unsigned ? "uint" : "int";
  if (name.starts_with(stem)) {
    const std::string_view bits = name.substr(stem.size());
    const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), type.bits);
    if (error != std::errc() || end != bits.data() + bits.size()) type.bits = 0;
  }
  // `bits` is 0 for a name that does not parse, which both conditions reject.
  const bool wide = !type.is_unsigned && (type.bits == 16 || type.bits == 32);
  FQ_CHECK((type.bits >= 1 && type.bits <= 8) || wide, "torchao",
           "the dtype '{}' is unsupported: use int1 to int8, uint1 to uint8, int16 or int32", name);
  return type;
}

std::string IntegerType::name() const { return fmt::format("{}int{}", is_unsigned ? "u" : "", bits); }

MappingType mapping_type(std::string_view name) {
  if (name == "SYMMETRIC") return MappingType::symmetric;
  if (name == "SYMMETRIC_NO_CLIPPING_ERR") return MappingType::symmetric_no_clipping_err;
  FQ_CHECK(name == "ASYMMETRIC", "torchao",
           "the mapping '{}': use SYMMETRIC, SYMMETRIC_NO_CLIPPING_ERR or ASYMMETRIC", name);
  return MappingType::asymmetric;
}

ZeroPointDomain zero_point_domain(std::string_view name) {
  if (name == "INT") return ZeroPointDomain::integer;
  if (name == "FLOAT") return ZeroPointDomain::floating;
  FQ_CHECK(name == "NONE", "torchao", "the zero point domain '{}': use INT, FLOAT or NONE", name);
  return ZeroPointDomain::none;
}

namespace {

using detail::AffineRow;
using detail::promoted;
using detail::rounded_value;

// Returns the elements of a scale or zero point in row-major order, one per block.
std::vector<float> block_values(const Tensor& t, std::int64_t count, const char* what, const char* function) {
  FQ_CHECK(t.numel() == count, function, "the {} is {} for {} blocks: use one element for each", what,
           to_string(t.shape()), count);
  return t.to(DType::f32).to_vector<float>();
}

// `strict` is off for dequantization, where torchao reads a missing zero point as 0.
void check_zero_point(const Parameters& p, bool strict, const char* function) {
  const bool given = p.zero_point.defined();
  FQ_CHECK(!given || p.domain != ZeroPointDomain::none, function,
           "a zero point is given and its domain is NONE: leave one of the two out");
  FQ_CHECK(given || p.domain == ZeroPointDomain::none || !strict, function,
           "the zero point is missing: use one for each scale, or the domain NONE");
  if (given && is_floating(p.zero_point.dtype())) check_float(p.zero_point.dtype(), "zero point", function);
}

}  // namespace

void check_float(DType dtype, const char* what, const char* function) {
  FQ_CHECK(is_floating(dtype) && dtype != DType::f64, function, "the {} is {}: use f32, f16 or bf16", what,
           name(dtype));
}

Codes Codes::of(IntegerType type, const CodeRange& range, const char* function) {
  const std::int64_t lower = range.quant_min.value_or(type.lower()),
                     upper = range.quant_max.value_or(type.upper());
  FQ_CHECK(lower >= type.lower() && upper <= type.upper(), function,
           "quant_min {} and quant_max {} exceed {}: use {} to {}", lower, upper, type.name(), type.lower(),
           type.upper());
  // A floating zero point is the value of the middle code, (qmax + qmin + 1) / 2.
  return {static_cast<float>(lower), static_cast<float>(upper), static_cast<float>(upper + lower + 1) / 2};
}

Grid make_grid(const Shape& shape, DType dtype, const Parameters& p, const Codes& codes, bool strict,
               const char* function) {
  check_float(p.scale.dtype(), "scale", function);
  check_zero_point(p, strict, function);
  const std::int64_t count = numel(scale_shape(shape, p.block_size, function));
  const bool given = p.zero_point.defined(), floating = p.domain == ZeroPointDomain::floating;
  const DType scale_type = p.scale.dtype(), zero_type = given ? p.zero_point.dtype() : scale_type;
  // PyTorch's promotion: 16-bit operands of one type round every operation to it, integer zero points do not
  // count.
  const DType product = promoted(dtype, scale_type), base = promoted(scale_type, zero_type);
  Grid grid{p.block_size, {}, codes, floating, floating ? promoted(dtype, base) : product};
  FQ_CHECK(
      // Rounded to f16, such bounds would be infinite and the clamp would have no effect.
      !strict || grid.steps != DType::f16 || (codes.lower >= -65504.0f && codes.upper <= 65504.0f), function,
      "codes of {} to {} exceed the range of f16, the type of the scale: use an f32 scale, or fewer bits",
      codes.lower, codes.upper);
  if (p.scale.device().is_meta()) return grid;
  const auto scales = block_values(p.scale, count, "scale", function);
  const auto zeros = given ? block_values(p.zero_point, count, "zero point", function) : std::vector<float>();
  grid.rows.resize(scales.size());
  for (std::size_t i = 0; i < scales.size(); ++i) {
    AffineRow& row = grid.rows[i];
    row.scale = scales[i];
    // torchao multiplies by fl(1 / scale) in the scale's type; only the floating domain divides.
    row.reciprocal = rounded_value(scale_type, 1.0f / scales[i]);
    // Without a zero point the formulas add -0, which changes no number, not even the sign of a zero.
    row.entry = !given ? -0.0f
                : floating
                    ? rounded_value(base, zeros[i] - rounded_value(scale_type, scales[i] * codes.middle))
                    : rounded_value(product, zeros[i]);
    row.exit = given ? floating ? zeros[i] : rounded_value(dtype, zeros[i]) : floating ? -0.0f : 0.0f;
  }
  return grid;
}

namespace {

constexpr const char* kBlockSize = "torchao.get_block_size";

// Block shape of each granularity: elements along each axis that share a scale.
struct BlockOf {
  const Shape& shape;

  Shape last_axis(std::int64_t length) const {
    FQ_CHECK(!shape.empty(), kBlockSize, "the input has no axes: use PerTensor");
    Shape block(shape.size(), 1);
    block.back() = length;
    return block;
  }
  Shape operator()(PerTensor) const { return shape; }
  Shape operator()(PerAxis g) const {
    Shape block = shape;
    block[static_cast<std::size_t>(normalize_axis(g.axis, static_cast<int>(shape.size()), kBlockSize))] = 1;
    return block;
  }
  Shape operator()(PerGroup g) const { return last_axis(g.group_size); }
  Shape operator()(PerRow) const { return last_axis(shape.empty() ? 1 : shape.back()); }
  Shape operator()(PerToken) const { return (*this)(PerRow{}); }
  Shape operator()(const PerBlock& g) const { return g.block_size; }
};

}  // namespace

Shape get_block_size(const Shape& input_shape, const Granularity& granularity) {
  Shape block = std::visit(BlockOf{input_shape}, granularity);
  (void)scale_shape(input_shape, block);
  return block;
}

Shape scale_shape(const Shape& input_shape, const Shape& block_size, std::string_view function) {
  FQ_CHECK(block_size.size() == input_shape.size(), function,
           "the block {} has another rank than the input {}", to_string(block_size), to_string(input_shape));
  Shape out(input_shape.size(), 1);
  for (std::size_t a = 0; a < out.size(); ++a) {
    const std::int64_t length = block_size[a], size = input_shape[a];
    // A block as long as its axis fits also if the axis is empty, where size % length is undefined.
    if (length == size) continue;
    FQ_CHECK(length > 0 && size % length == 0, function,
             "the block {} does not divide the input {}: choose a divisor of {} along axis {}",
             to_string(block_size), to_string(input_shape), size, a);
    out[a] = size / length;
  }
  return out;
}

}  // namespace fq::torchao
