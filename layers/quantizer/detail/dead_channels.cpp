#include "fakequant/layers/quantizer/detail/dead_channels.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/numerics/detail/sum_formulas.h"
#include "fakequant/layers/modules/detail/layer_product.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"

namespace fq {
namespace {

// True if the layer multiplies integer codes, whose int32 sums include the bias code.
bool multiplies_codes(const TensorQuantizer& q) {
  const Format& format = q.descriptor().format();
  return q.enabled() && q.params().arithmetic == Arithmetic::deployed && format.is_integer() &&
         format.bits() <= 8 && q.descriptor().needs_amax() && q.descriptor().block_sizes().empty() &&
         q.amax().defined();
}

std::int64_t largest_code(const Format& format) {
  return static_cast<std::int64_t>(std::max(-format.lower(), format.bound()));
}

/// Returns the largest magnitude of a bias for each range. Range r belongs to the channels r, r + ranges, ..:
/// one of each group of a transposed convolution, or all channels.
std::vector<float> largest_biases(const std::vector<float>& bias, std::size_t ranges) {
  std::vector<float> out(ranges, 0.0f);
  for (std::size_t c = 0; c < bias.size(); ++c)
    out[c % ranges] = std::max(out[c % ranges], std::abs(bias[c]));
  return out;
}

/// Raises the ranges whose bias codes exceed `room`, the largest magnitude of a bias code. Returns their
/// number.
int raise_ranges(TensorQuantizer& weight, const std::vector<float>& bias, float input_scale, double room) {
  const double bound = weight.descriptor().format().bound();
  Tensor ranges = detail::flat_ranges(weight.amax());
  auto* amax = ranges.mutable_data<float>();
  const auto biases = largest_biases(bias, static_cast<std::size_t>(ranges.numel()));
  int raised = 0;
  for (std::size_t r = 0; r < biases.size(); ++r) {
    // |bias| / (s_x * s_w) <= room with s_w = amax / bound. Twice that leaves room for training.
    const double least = double(biases[r]) / (double(input_scale) * room) * bound;
    if (double(amax[r]) >= least) continue;
    amax[r] = static_cast<float>(2 * least);
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
    if (quant == nullptr || quant->weight_quantizer() == nullptr) continue;
    const auto product = detail::layer_product(*module);
    if (!product || !product->bias.defined()) continue;
    TensorQuantizer &weight = *quant->weight_quantizer(), &input = *quant->input_quantizers()[0];
    if (weight.descriptor().amax().defined()) continue;
    if (!multiplies_codes(weight) || !multiplies_codes(input) || input.amax().numel() != 1) continue;
    const std::int64_t largest =
        largest_code(weight.descriptor().format()) * largest_code(input.descriptor().format());
    // int32 less the largest sum of products.
    const auto room = detail::bias_room(product->terms * largest);
    if (room == 0 || product->channels % weight.amax().numel() != 0) continue;
    raised += raise_ranges(weight, product->bias.tensor().to_vector<float>(),
                           input.grid().scale.data<float>()[0], room);
  }
  return raised;
}

}  // namespace fq
