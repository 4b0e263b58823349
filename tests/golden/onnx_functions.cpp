#include "fakequant/core/error.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/onnx.h"
#include "fakequant/reference/tensorrt.h"
#include "functions.h"

namespace fq::golden {
namespace {

/// An input of codes, which files keep one a byte, as the type that the case names.
Tensor case_codes(const Case& c, const std::string& input, DType dtype) {
  const Tensor codes = c.tensor(input);
  return codes.defined() && bit_width(dtype) < 8 ? pack_codes(codes, dtype) : codes;
}

Outputs quantize_linear(const Case& c) {
  const DType dtype = dtype_named(c.text("output_dtype", "uint8"));
  return {{"codes", onnx::quantize_linear(c.tensor("x"), c.tensor("scale"),
                                          case_codes(c, "zero_point", dtype), c.integer("axis", 1),
                                          c.integer("block_size", 0), c.flag("saturate", true), dtype)}};
}

Outputs dequantize_linear(const Case& c) {
  const DType dtype = dtype_named(c.text("input_dtype", "uint8"));
  return {{"y", onnx::dequantize_linear(case_codes(c, "codes", dtype), c.tensor("scale"),
                                        case_codes(c, "zero_point", dtype), c.integer("axis", 1),
                                        c.integer("block_size", 0))}};
}

Outputs tripy_quantize(const Case& c) {
  return {{"codes", tripy::quantize(c.tensor("x"), c.tensor("scale"), dtype_named(c.text("dtype")),
                                    c.optional_integer("dim"))}};
}

Outputs tripy_dequantize(const Case& c) {
  const Tensor codes = case_codes(c, "codes", dtype_named(c.text("input_dtype", "int8")));
  return {{"y", tripy::dequantize(codes, c.tensor("scale"), dtype_named(c.text("dtype", "float32")),
                                  c.optional_integer("dim"))}};
}

Outputs tensorrt_quantize(const Case& c) {
  const Tensor scale = c.tensor("scale"), zero_point = c.tensor("zero_point");
  const int axis = c.integer("axis", 1);
  const DType to_type = dtype_named(c.text("to_type", "int8"));
  const Tensor codes = tensorrt::quantize(c.tensor("x"), scale, to_type, axis, zero_point);
  return {{"codes", codes}, {"y", tensorrt::dequantize(codes, scale, DType::f32, axis, zero_point)}};
}

}  // namespace

void add_onnx(Functions& functions) {
  functions["onnx_quantize_linear"] = quantize_linear;
  functions["onnx_dequantize_linear"] = dequantize_linear;
  functions["tripy_quantize"] = tripy_quantize;
  functions["tripy_dequantize"] = tripy_dequantize;
  functions["tensorrt_quantize"] = tensorrt_quantize;
}

}  // namespace fq::golden
