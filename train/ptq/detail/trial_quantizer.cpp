#include "fakequant/train/ptq/detail/trial_quantizer.h"

#include "fakequant/layers/quantizer/sequential_quantizer.h"
#include "fakequant/train/calibration/detail/calibration_targets.h"

namespace fq::ptq {
namespace {

std::shared_ptr<TensorQuantizer> calibrated_copy(const TensorQuantizer& original, const Tensor& weight) {
  QuantParams params;
  params.name = original.name();
  params.descriptor = original.descriptor();
  params.arithmetic = original.params().arithmetic;
  params.enabled = original.params().enabled;
  params.zero_point = original.params().zero_point;
  params.pow2 = original.params().pow2;
  auto copy = std::make_shared<TensorQuantizer>(std::move(params));
  if (!original.params().enabled || !original.descriptor().needs_amax() ||
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
