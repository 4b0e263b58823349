#include "fakequant/layers/quantizer/detail/arithmetic.h"

#include "fakequant/core/tape.h"
#include "fakequant/layers/quantizer/detail/engine_codes.h"
#include "fakequant/layers/quantizer/detail/pre_quant_scale.h"

namespace fq::detail {

Variable DeployedArithmetic::quantize(const Variable& x) const {
  const Variable values = as_f32(x);
  if (has_own_codes(settings_)) {
    const Variable floats = values.as_float();
    return ops::attach_codes(floats, own_codes(floats.tensor(), settings_));
  }
  const QuantDescriptor& d = settings_.descriptor;
  Variable codes = grid_.codes_of(values);
  if (!codes.defined()) {
    const ops::LearnedRange learned{range_.learned(), settings_.amax_gradient, d.scale_amax().value_or(1)};
    codes = ops::quantize(values, grid_.of(values), learned.amax.defined() ? &learned : nullptr);
    grid_.keep_codes(values, codes);
  }
  return d.fake_quant() ? codes : Variable(codes.quantized()->codes);
}

Tensor DeployedArithmetic::values(const Tensor& x) const {
  if (has_own_codes(settings_)) return dequantize(own_codes(x, settings_));
  const NoGrad no_grad;
  const Variable floats(x.to(DType::f32));
  return ops::quantize(floats, grid_.of(floats)).tensor();
}

std::unique_ptr<QuantizerArithmetic> make_arithmetic(const QuantizerSettings& settings,
                                                     const QuantizerRange& range, const QuantizerGrid& grid) {
  if (settings.arithmetic == Arithmetic::reference)
    return std::make_unique<ReferenceArithmetic>(settings, range);
  return std::make_unique<DeployedArithmetic>(settings, range, grid);
}

}  // namespace fq::detail
