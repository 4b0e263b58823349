#include "fakequant/reference/modelopt.h"
#include "functions.h"

namespace fq::golden {
namespace {

/// A list is {exponent, mantissa}, one number an integer's bits.
NumBits num_bits(const Case& c, const std::string& attribute) {
  const auto bits = c.integers(attribute);
  return bits.size() == 2 ? NumBits(static_cast<int>(bits[0]), static_cast<int>(bits[1]))
                          : NumBits(c.integer(attribute, 8));
}

Outputs static_blocks(const Case& c) {
  const bool quantized = c.flag("quantize_block_scales", true);
  const double fp8_max = c.number("fp8_max_for_normalization", 448);
  Outputs out = with_gradient(c, [&](const Variable& x) {
    return modelopt::static_blockwise_fp4_fake_quant(x, c.tensor("amax"), c.tensor("global_amax"), quantized,
                                                     fp8_max, {}, c.flag("pass_through_bwd", false));
  });
  const Tensor scale =
      modelopt::compute_fp4_scales(c.tensor("amax"), c.tensor("global_amax"), quantized, fp8_max);
  out["scale"] = scale.reshape({scale.numel()});
  return out;
}

}  // namespace

void add_modelopt_blocks(Functions& functions) {
  functions["static_blockwise_fp4_fake_quant"] = static_blocks;
  functions["fp4_cast_ste"] = [](const Case& c) {
    return with_gradient(c, [](const Variable& x) { return modelopt::fp4_cast_ste(x); });
  };
  functions["dynamic_block_quantize"] = [](const Case& c) {
    const auto kernel =
        c.text("kernel") == "triton" ? modelopt::BlockKernel::triton : modelopt::BlockKernel::cuda_ext;
    return with_gradient(c, [&](const Variable& x) {
      return modelopt::dynamic_block_quantize(x, num_bits(c, "num_bits"), num_bits(c, "scale_bits"),
                                              c.integer("block_size", 16), c.tensor("global_amax"), kernel,
                                              c.flag("pass_through_bwd", true));
    });
  };
}

}  // namespace fq::golden
