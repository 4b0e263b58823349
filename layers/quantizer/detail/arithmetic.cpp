#include "fakequant/layers/quantizer/detail/arithmetic.h"

#include <cmath>

#include "fakequant/core/tape.h"
#include "fakequant/layers/quantizer/detail/engine_codes.h"
#include "fakequant/layers/quantizer/detail/pre_quant_scale.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"

namespace fq::detail {
namespace {

constexpr double kSamples = 64;  // a usual batch

}  // namespace

/// LSQ divides the gradient of a range by sqrt(n * bound), n elements of the batch (ops/quantize.h). The
/// factor replaces n by the elements of `kSamples` samples, so that the gradient does not depend on how a
/// batch is split.
double DeployedArithmetic::gradient_factor(const Variable& x, bool is_weight) const {
  const double factor = params_.descriptor.scale_amax().value_or(1);
  if (is_weight || params_.amax_gradient != AmaxGradient::lsq || x.rank() < 2) return factor;
  return factor * std::sqrt(static_cast<double>(x.dim(0)) / kSamples);
}

Variable DeployedArithmetic::quantize(const Variable& x, bool is_weight) const {
  const Variable values = as_f32(x);
  if (has_own_codes(params_)) {
    const Variable floats = values.as_float();
    return ops::attach_codes(floats, own_codes(floats.tensor(), params_, weight_.extreme_codes()));
  }
  const QuantDescriptor& d = params_.descriptor;
  Variable codes = grid_.codes_of(values);
  if (!codes.defined()) {
    const ops::LearnedRange learned{range_.learned(), params_.amax_gradient,
                                    gradient_factor(values, is_weight)};
    codes = ops::quantize(values, grid_.of(values), learned.amax.defined() ? &learned : nullptr);
    grid_.keep_codes(values, codes);
  }
  return d.fake_quant() ? codes : Variable(codes.quantized()->codes);
}

Tensor DeployedArithmetic::values(const Tensor& x) const {
  if (has_own_codes(params_)) return dequantize(own_codes(x, params_, weight_.extreme_codes()));
  const NoGrad no_grad;
  const Variable floats(x.to(DType::f32));
  return ops::quantize(floats, grid_.of(floats)).tensor();
}

std::unique_ptr<QuantizerArithmetic> make_arithmetic(const QuantParams& params,
                                                     const QuantizerRange& range, const QuantizerGrid& grid,
                                                     const WeightCodes& weight) {
  if (params.arithmetic == Arithmetic::reference)
    return std::make_unique<ReferenceArithmetic>(params, range);
  return std::make_unique<DeployedArithmetic>(params, range, grid, weight);
}

}  // namespace fq::detail
