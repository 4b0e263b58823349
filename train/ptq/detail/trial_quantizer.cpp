#include "fakequant/train/ptq/detail/trial_quantizer.h"

#include "fakequant/layers/quantizer/sequential_quantizer.h"
#include "fakequant/train/calibration/detail/calibration_targets.h"

namespace fq::ptq {
namespace {

std::shared_ptr<TensorQuantizer> calibrated_copy(const TensorQuantizer& original, const Tensor& weight) {
  QuantizerSettings settings;
  settings.name = original.name();
  settings.descriptor = original.descriptor();
  settings.arithmetic = original.settings().arithmetic;
  settings.enabled = original.settings().enabled;
  settings.zero_point = original.settings().zero_point;
  settings.pow2 = original.settings().pow2;
  auto copy = std::make_shared<TensorQuantizer>(std::move(settings));
  if (!original.settings().enabled || !original.descriptor().needs_amax() ||
      original.descriptor().amax().defined())
    return copy;
  detail::collect_whole(*copy, weight);
  copy->load_calibrated_amax();
  return copy;
}

}  // namespace

Tensor trial_weight(TensorQuantizer& quantizer, const Tensor& weight) {
  const NoGrad no_grad;
  Variable values(weight);
  for (const TensorQuantizer* part : quantizer_parts(quantizer))
    values = calibrated_copy(*part, weight)->weight(values);
  return values.tensor();
}

}  // namespace fq::ptq
