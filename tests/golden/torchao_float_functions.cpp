#include "fakequant/core/error.h"
#include "fakequant/reference/torchao.h"
#include "functions.h"

namespace fq::golden {
namespace {

DType case_float8(const Case& c) { return dtype_named(c.text("float8_dtype", "float8_e4m3fn")); }

Outputs choose_scale(const Case& c) {
  torchao::Float8ScaleOptions options{dtype_named(c.text("scale_dtype", "float32")), {}, {}};
  if (c.has("hp_value_lb")) options.hp_value_lb = c.number("hp_value_lb", 0);
  if (c.has("hp_value_ub")) options.hp_value_ub = c.number("hp_value_ub", 0);
  return {{"scale",
           torchao::choose_scale_float8(c.tensor("x"), c.integers("block_size"), case_float8(c), options)}};
}

FloatFormat case_element(const Case& c) {
  static const std::map<std::string, FloatFormat> formats{{"float8_e4m3fn", {4, 3}},
                                                          {"float8_e5m2", {5, 2}},
                                                          {"fp6_e2m3", {2, 3}},
                                                          {"fp6_e3m2", {3, 2}},
                                                          {"float4_e2m1fn_x2", {2, 1}}};
  const auto found = formats.find(c.text("elem_dtype"));
  if (found == formats.end()) throw ArgumentError("[golden] unknown elem_dtype " + c.text("elem_dtype"));
  return found->second;
}

Outputs to_mx(const Case& c) {
  const FloatFormat element = case_element(c);
  const std::int64_t block_size = c.integer("block_size", 32);
  const auto mx = torchao::to_mx(c.tensor("x"), element, block_size,
                                 torchao::scaling_mode(c.text("scaling_mode", "FLOOR")));
  const Tensor y = torchao::to_dtype(mx, element, block_size, dtype_named(c.text("target_dtype", "float32")));
  return {{"scale", mx.scale}, {"codes", mx.codes}, {"y", y}};
}

Outputs nvfp4_quantize(const Case& c) {
  if (c.integer("block_size", 16) != 16) throw ArgumentError("[golden] NVFP4 has blocks of 16");
  const auto [scale, codes] = torchao::nvfp4_quantize(c.tensor("x"), c.tensor("per_tensor_scale"));
  return {{"scale", scale}, {"codes", codes}};
}

Outputs cast_floatx(const Case& c) {
  const int ebits = c.integer("ebits", 0), mbits = c.integer("mbits", 0);
  const Tensor codes = torchao::cast_floatx(c.tensor("x"), ebits, mbits);
  return {{"codes", codes}, {"y", torchao::decode_floatx(codes, ebits, mbits)}};
}

}  // namespace

void add_torchao_float(Functions& functions) {
  functions["choose_scale_float8"] = choose_scale;
  functions["quantize_affine_float8"] = [](const Case& c) -> Outputs {
    return {{"codes", torchao::quantize_affine_float8(c.tensor("x"), c.tensor("scale"), case_float8(c))}};
  };
  functions["dequantize_affine_float8"] = [](const Case& c) -> Outputs {
    return {{"y", torchao::dequantize_affine_float8(c.tensor("codes"), c.tensor("scale"),
                                                    dtype_named(c.text("output_dtype", "float32")))}};
  };
  functions["cast_floatx"] = cast_floatx;
  functions["to_mx"] = to_mx;
  functions["nvfp4_quantize"] = nvfp4_quantize;
}

}  // namespace fq::golden
