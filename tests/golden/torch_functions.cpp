#include "fakequant/reference/torch_ref.h"
#include "functions.h"

namespace fq::golden {
namespace {

using torch_ref::fake_quantize_learnable_per_channel_affine;
using torch_ref::fake_quantize_learnable_per_tensor_affine;

Outputs learnable(const Case& c, bool per_channel) {
  const Variable x(c.tensor("x"), true), scale(c.tensor("scale"), true), zero(c.tensor("zero_point"), true);
  const int lower = c.integer("quant_min", 0), upper = c.integer("quant_max", 255);
  const double factor = c.number("grad_factor", 1);
  const Variable y = per_channel
                         ? fake_quantize_learnable_per_channel_affine(x, scale, zero, c.integer("axis", 0),
                                                                      lower, upper, factor)
                         : fake_quantize_learnable_per_tensor_affine(x, scale, zero, lower, upper, factor);
  Outputs out{{"y", y.tensor()}};
  if (!c.tensor("grad_y").defined()) return out;
  y.backward(c.tensor("grad_y"));
  out["grad_x"] = x.grad();
  out["grad_scale"] = scale.grad();
  out["grad_zero_point"] = zero.grad();
  return out;
}

}  // namespace

void add_torch(Functions& functions) {
  functions["fake_quantize_per_tensor_affine"] = [](const Case& c) {
    return with_gradient(c, [&](const Variable& x) {
      return torch_ref::fake_quantize_per_tensor_affine(x, c.number("scale", 1), c.integer("zero_point", 0),
                                                        c.integer("quant_min", 0),
                                                        c.integer("quant_max", 255));
    });
  };
  functions["fake_quantize_per_channel_affine"] = [](const Case& c) {
    return with_gradient(c, [&](const Variable& x) {
      return torch_ref::fake_quantize_per_channel_affine(x, c.tensor("scale"), c.tensor("zero_point"),
                                                         c.integer("axis", 0), c.integer("quant_min", 0),
                                                         c.integer("quant_max", 255));
    });
  };
  functions["fake_quantize_learnable_per_tensor_affine"] = [](const Case& c) { return learnable(c, false); };
  functions["fake_quantize_learnable_per_channel_affine"] = [](const Case& c) { return learnable(c, true); };
  functions["cast_float8"] = [](const Case& c) -> Outputs {
    return {{"codes", torch_ref::cast_float8(c.tensor("x"), dtype_named(c.text("float8_dtype")),
                                             c.flag("saturate", true))}};
  };
  functions["decode_float8"] = [](const Case& c) -> Outputs {
    return {
        {"y", torch_ref::decode_float8(c.tensor("codes"), dtype_named(c.text("output_dtype", "float32")))}};
  };
  functions["cast_float"] = [](const Case& c) -> Outputs {
    return {{"y", torch_ref::cast_float(c.tensor("x"), dtype_named(c.text("output_dtype")))}};
  };
}

}  // namespace fq::golden
