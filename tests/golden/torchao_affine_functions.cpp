#include "fakequant/reference/torchao.h"
#include "functions.h"

namespace fq::golden {
namespace {

using torchao::IntegerType;
using torchao::QParams;
using torchao::QParamsOptions;
using torchao::ZeroPointDomain;

std::optional<std::int64_t> code_bound(const Case& c, const std::string& attribute) {
  const auto values = c.integers(attribute);
  return values.empty() ? std::nullopt : std::optional(values[0]);
}

torchao::CodeRange case_range(const Case& c) {
  return {code_bound(c, "quant_min"), code_bound(c, "quant_max")};
}

ZeroPointDomain case_domain(const Case& c) {
  return torchao::zero_point_domain(c.text("zero_point_domain", "INT"));
}

IntegerType case_type(const Case& c, const std::string& attribute) {
  return IntegerType::named(c.text(attribute));
}

std::optional<DType> case_dtype(const Case& c, const std::string& attribute) {
  return c.has(attribute) ? std::optional(dtype_named(c.text(attribute))) : std::nullopt;
}

Outputs quantize(const Case& c) {
  return {{"codes", torchao::quantize_affine(c.tensor("x"), c.integers("block_size"), c.tensor("scale"),
                                             c.tensor("zero_point"), case_type(c, "output_dtype"),
                                             case_range(c), case_domain(c))}};
}

Outputs dequantize(const Case& c) {
  return {{"y", torchao::dequantize_affine(c.tensor("codes"), c.integers("block_size"), c.tensor("scale"),
                                           c.tensor("zero_point"), case_type(c, "input_dtype"), case_range(c),
                                           case_domain(c), dtype_named(c.text("output_dtype", "float32")))}};
}

Outputs fake_quantize(const Case& c) {
  const Variable scale(c.tensor("scale"), c.tensor("grad_y").defined());
  Outputs out = with_gradient(c, [&](const Variable& x) {
    return torchao::fake_quantize_affine(x, c.integers("block_size"), scale, c.tensor("zero_point"),
                                         case_type(c, "quant_dtype"), case_range(c), case_domain(c));
  });
  if (scale.requires_grad()) out["grad_scale"] = scale.grad();
  return out;
}

Outputs fake_quantize_cachemask(const Case& c) {
  const auto [y, mask] = torchao::fake_quantize_affine_cachemask(
      c.tensor("x"), c.integers("block_size"), c.tensor("scale"), c.tensor("zero_point"),
      case_type(c, "quant_dtype"), case_range(c), case_domain(c));
  return {{"y", y}, {"mask", mask}};
}

using Choose = QParams (*)(const Tensor&, torchao::MappingType, const Shape&, IntegerType,
                           const QParamsOptions&);

Outputs choose(const Case& c, Choose f) {
  QParamsOptions options{case_range(c),
                         {},
                         case_dtype(c, "scale_dtype"),
                         case_dtype(c, "zero_point_dtype"),
                         c.flag("keepdim", false)};
  if (c.has("eps")) options.eps = c.number("eps", 0);
  const auto [scale, zero_point] = f(c.tensor("x"), torchao::mapping_type(c.text("mapping_type")),
                                     c.integers("block_size"), case_type(c, "target_dtype"), options);
  return {{"scale", scale}, {"zero_point", zero_point}};
}

}  // namespace

void add_torchao_affine(Functions& functions) {
  functions["quantize_affine"] = quantize;
  functions["dequantize_affine"] = dequantize;
  functions["fake_quantize_affine"] = fake_quantize;
  functions["fake_quantize_affine_cachemask"] = fake_quantize_cachemask;
  const auto add = [&](const char* name, Choose f) {
    functions[name] = [f](const Case& c) { return choose(c, f); };
  };
  add("choose_qparams_affine", torchao::choose_qparams_affine);
  add("choose_qparams_affine_tinygemm", torchao::choose_qparams_affine_tinygemm);
  add("choose_qparams_affine_dont_preserve_zero", torchao::choose_qparams_affine_dont_preserve_zero);
}

}  // namespace fq::golden
