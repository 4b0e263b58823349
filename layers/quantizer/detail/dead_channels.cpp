#include "fakequant/layers/quantizer/detail/dead_channels.h"

#include <algorithm>
#include <cmath>

#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"

namespace fq {
namespace {

constexpr double kLargestBias = 0x1p22;

Variable bias_of(Module& module) {
  if (auto* conv = dynamic_cast<Conv*>(&module)) return conv->bias();
  if (auto* linear = dynamic_cast<Linear*>(&module)) return linear->bias();
  return {};
}

bool multiplies_codes(const TensorQuantizer& q) {
  return q.enabled() && q.settings().arithmetic == Arithmetic::deployed &&
         q.descriptor().format().is_integer() && q.descriptor().needs_amax() &&
         q.descriptor().block_sizes().empty() && q.amax().defined();
}

int raise_ranges(TensorQuantizer& weight, const std::vector<float>& bias, float input_scale) {
  const float bound = weight.descriptor().format().bound();
  Tensor ranges = detail::flat_ranges(weight.amax());
  auto* amax = ranges.mutable_data<float>();
  int raised = 0;
  for (std::size_t c = 0; c < bias.size(); ++c) {
    const double step = std::abs(double(bias[c])) / (double(input_scale) * kLargestBias);
    const auto least = static_cast<float>(step * double(bound));
    if (amax[c] >= least) continue;
    amax[c] = least;
    ++raised;
  }
  if (raised > 0) weight.raise_amax(ranges.reshape(weight.amax().shape()));
  return raised;
}

}  // namespace

int floor_dead_channels(Module& model) {
  int raised = 0;
  for (const auto& [path, module] : model.named_modules()) {
    auto* quant = dynamic_cast<QuantModule*>(module);
    const Variable bias = bias_of(*module);
    if (quant == nullptr || quant->weight_quantizer() == nullptr || !bias.defined()) continue;
    TensorQuantizer &weight = *quant->weight_quantizer(), &input = *quant->input_quantizers()[0];
    if (weight.descriptor().amax().defined()) continue;
    if (!multiplies_codes(weight) || !multiplies_codes(input) || input.amax().numel() != 1) continue;
    const auto values = bias.tensor().to_vector<float>();
    if (weight.amax().numel() != static_cast<std::int64_t>(values.size())) continue;
    raised += raise_ranges(weight, values, input.spec().scale.data<float>()[0]);
  }
  return raised;
}

}  // namespace fq
