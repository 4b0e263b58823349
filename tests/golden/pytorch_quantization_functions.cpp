#include "fakequant/reference/pytorch_quantization.h"
#include "functions.h"

namespace fq::golden {
namespace {

std::optional<DType> output_dtype(const Case& c) {
  return c.has("output_dtype") ? std::optional(dtype_named(c.text("output_dtype"))) : std::nullopt;
}

Outputs tensor_quant(const Case& c) {
  const Tensor grad_codes = c.tensor("grad_y"), grad_scale = c.tensor("grad_scale");
  const Variable x(c.tensor("x"), grad_codes.defined());
  const auto [codes, scale] = pytorch_quantization::tensor_quant(
      x, c.tensor("amax"), c.integer("num_bits", 8), c.flag("unsigned", false), c.flag("narrow_range", true),
      output_dtype(c));
  Outputs out{{"codes", codes.tensor()}, {"scale", scale.tensor()}};
  if (!grad_codes.defined()) return out;
  codes.backward(grad_codes);
  if (grad_scale.defined()) scale.backward(grad_scale);
  out["grad_x"] = x.grad();
  return out;
}

Outputs clip(const Case& c) {
  const Tensor grad_y = c.tensor("grad_y");
  const bool graded = grad_y.defined();
  const Variable x(c.tensor("x"), graded), lower(c.tensor("clip_value_min"), graded),
      upper(c.tensor("clip_value_max"), graded);
  const Variable y = pytorch_quantization::clip(x, lower, upper);
  Outputs out{{"y", y.tensor()}};
  if (!graded) return out;
  y.backward(grad_y);
  out["grad_x"] = x.grad();
  out["grad_min"] = lower.grad();
  out["grad_max"] = upper.grad();
  return out;
}

}  // namespace

void add_pytorch_quantization(Functions& functions) {
  functions["tensor_quant"] = tensor_quant;
  functions["clip"] = clip;
  functions["legacy_fake_tensor_quant"] = [](const Case& c) {
    return with_gradient(c, [&](const Variable& x) {
      return pytorch_quantization::legacy_fake_tensor_quant(x, c.tensor("amax"), c.integer("num_bits", 8),
                                                            c.flag("unsigned", false),
                                                            c.flag("narrow_range", true));
    });
  };
  functions["fake_affine_tensor_quant"] = [](const Case& c) {
    return with_gradient(c, [&](const Variable& x) {
      return pytorch_quantization::fake_affine_tensor_quant(x, c.tensor("min_range"), c.tensor("max_range"),
                                                            c.integer("num_bits", 8));
    });
  };
}

}  // namespace fq::golden
