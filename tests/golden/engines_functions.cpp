#include "fakequant/core/error.h"
#include "fakequant/reference/ggml.h"
#include "fakequant/reference/onnx.h"
#include "fakequant/reference/xnnpack.h"
#include "functions.h"

namespace fq::golden {
namespace {

Outputs blocks(const ggml::Blocks& b, const Tensor& bytes) {
  return {{"codes", b.codes}, {"scale", b.scale}, {"bytes", bytes}};
}

Outputs matmul_q4_0(const Case& c) {
  const auto weight = ggml::unpack_q4_0(c.tensor("weight"));
  return {{"y", ggml::matmul_q4_0_q8_0(c.tensor("x"), weight, ggml::buffer(c.text("buffer", "plain")))}};
}

Outputs matmul_q8_0(const Case& c) {
  if (ggml::buffer(c.text("buffer", "plain")) != ggml::Buffer::plain)
    throw ArgumentError("[golden] Q8_0 has plain buffers only");
  return {{"y", ggml::matmul_q8_0(c.tensor("x"), ggml::unpack_q8_0(c.tensor("weight")))}};
}

xnnpack::StaticGrid grid(const Case& c, const std::string& of) {
  return {static_cast<float>(c.number(of + "_scale", 1)), c.integer(of + "_zero_point", 0)};
}

Outputs linear_qs8(const Case& c) {
  const auto [codes, y] = xnnpack::linear_qs8(c.tensor("x"), grid(c, "x"), c.tensor("weight_codes"),
                                              c.tensor("weight_scale"), grid(c, "y"), c.tensor("bias"));
  return {{"codes", codes}, {"y", y}};
}

Outputs dynamic_matmul(const Case& c) {
  const auto [codes, scale, zero_point] = onnx::dynamic_quantize_linear(c.tensor("x"));
  return {{"codes", codes},
          {"x_scale", scale},
          {"x_zero_point", zero_point},
          {"y", onnx::dynamic_quantize_matmul(c.tensor("x"), c.tensor("weight_codes"),
                                              c.tensor("weight_scale"), c.tensor("bias"))}};
}

Outputs gqa(const Case& c) {
  const auto [k, v, y] =
      onnx::gqa_int8_kv(c.tensor("q"), c.tensor("k"), c.tensor("v"), c.tensor("k_scale"), c.tensor("v_scale"),
                        {c.integer("num_heads", 1), c.integer("kv_num_heads", 1)});
  return {{"k_codes", k}, {"v_codes", v}, {"y", y}};
}

}  // namespace

void add_engines(Functions& functions) {
  functions["ggml_quantize_q4_0"] = [](const Case& c) {
    const auto b = ggml::quantize_q4_0(c.tensor("x"));
    return blocks(b, ggml::pack_q4_0(b));
  };
  functions["ggml_quantize_q8_0"] = [](const Case& c) {
    const auto b = ggml::quantize_q8_0(c.tensor("x"));
    return blocks(b, ggml::pack_q8_0(b));
  };
  functions["ggml_quantize_q8_0_activation"] = [](const Case& c) {
    const auto b = ggml::quantize_q8_0_activation(c.tensor("x"));
    return blocks(b, ggml::pack_q8_0(b));
  };
  functions["ggml_matmul_q4_0_q8_0"] = matmul_q4_0;
  functions["ggml_matmul_q8_0"] = matmul_q8_0;
  functions["xnnpack_linear_qd8_qc8w"] = [](const Case& c) -> Outputs {
    return {{"y", xnnpack::linear_qd8_qc8w(c.tensor("x"), c.tensor("weight_codes"), c.tensor("weight_scale"),
                                           c.tensor("bias"))}};
  };
  functions["xnnpack_linear_qd8_qc4w"] = [](const Case& c) -> Outputs {
    return {{"y", xnnpack::linear_qd8_qc4w(c.tensor("x"), c.tensor("weight_codes"), c.tensor("weight_scale"),
                                           c.tensor("bias"))}};
  };
  functions["xnnpack_linear_qd8_qb4w"] = [](const Case& c) -> Outputs {
    return {{"y", xnnpack::linear_qd8_qb4w(c.tensor("x"), c.tensor("weight_codes"), c.tensor("weight_scale"),
                                           c.integer("block_size", 32), c.tensor("bias"))}};
  };
  functions["xnnpack_linear_qs8"] = linear_qs8;
  functions["ort_dynamic_quantize_matmul"] = dynamic_matmul;
  functions["ort_gqa_int8_kv_codes"] = gqa;
  functions["ort_matmulnbits_level4"] = [](const Case& c) -> Outputs {
    return {{"y", onnx::matmulnbits_level4(c.tensor("x"), c.tensor("weight_codes"), c.tensor("weight_scale"),
                                           c.integer("block_size", 32))}};
  };
}

}  // namespace fq::golden
