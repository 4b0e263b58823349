#include "fakequant/layers/model/fold.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/operators.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/conv.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq {
namespace {

/// Multiplies the slices of w along `axis` by factor[c].
void scale_channels(Variable weight, int axis, const std::vector<float>& factor) {
  Tensor& w = weight.mutable_tensor();
  const AxisView view = axis_view(w.shape(), axis);
  auto* values = w.mutable_data<float>();
  for (std::int64_t o = 0; o < view.outer; ++o)
    for (std::int64_t c = 0; c < view.size; ++c)
      for (std::int64_t i = 0; i < view.inner; ++i)
        values[(o * view.size + c) * view.inner + i] *= factor[static_cast<std::size_t>(c)];
}

bool by_channel(const TensorQuantizer& q, std::size_t channels) {
  return q.descriptor().block_sizes().empty() && q.amax().numel() == static_cast<std::int64_t>(channels);
}

/// The ranges of a weight that was multiplied by `factor`.
void move_ranges(QuantModule& quant, const std::vector<float>& factor) {
  const Tensor weight = quant.quantized_weight().tensor();
  for (TensorQuantizer* q : quantizer_parts(*quant.weight_quantizer())) {
    if (!q->descriptor().needs_amax() || q->descriptor().has_dynamic_blocks() || !q->amax().defined())
      continue;
    Tensor ranges = detail::flat_ranges(q->amax());
    if (by_channel(*q, factor.size())) {
      auto* amax = ranges.mutable_data<float>();
      for (std::size_t c = 0; c < factor.size(); ++c) amax[c] *= std::abs(factor[c]);
    } else {
      ranges = detail::ranges_of(weight, detail::BlockView::of(q->descriptor(), weight.shape()), q->name());
    }
    q->set_amax(ranges.reshape(q->amax().shape()));
  }
}

template <class Layer>
void fold_into(Layer& layer, const BatchNorm& norm) {
  layer.ensure_bias();
  const auto gamma = norm.weight().tensor().to_vector<float>(),
             beta = norm.bias().tensor().to_vector<float>();
  const auto mean = norm.running_mean().to_vector<float>(), variance = norm.running_var().to_vector<float>();
  std::vector<float> factor(gamma.size());
  Variable bias = layer.bias();
  auto* b = bias.mutable_tensor().template mutable_data<float>();
  for (std::size_t c = 0; c < factor.size(); ++c) {
    const double f = gamma[c] / std::sqrt(static_cast<double>(variance[c]) + norm.eps());
    factor[c] = static_cast<float>(f);
    b[c] = static_cast<float>((static_cast<double>(b[c]) - mean[c]) * f + beta[c]);
  }
  scale_channels(layer.weight(), layer.channel_axis(), factor);
  auto* quant = dynamic_cast<QuantModule*>(&layer);
  if (quant != nullptr && quant->weight_quantizer() != nullptr) move_ranges(*quant, factor);
}

bool fold_pair(Module& layer, const BatchNorm& norm) {
  if (auto* conv = dynamic_cast<Conv*>(&layer);
      conv != nullptr && conv->weight().dim(conv->channel_axis()) == conv->out_channels())
    fold_into(*conv, norm);
  else if (auto* linear = dynamic_cast<Linear*>(&layer))
    fold_into(*linear, norm);
  else
    return false;
  return true;
}

}  // namespace

std::vector<std::string> fold_batch_norm(Module& model, const Shape& input_shape) {
  const TraceGraph graph = trace(model, input_shape);
  std::map<std::string, int> calls;
  for (const auto& node : graph.nodes)
    if (!traits(node.op).is_conversion) ++calls[node.path];
  std::vector<std::string> folded;
  if (std::ranges::any_of(graph.nodes, [](const auto& node) { return node.op == "batch_norm"; }))
    check_not_compressed(model, "fold_batch_norm");
  for (const auto& node : graph.nodes) {
    if (node.op != "batch_norm" || calls[node.path] != 1) continue;
    const TraceValue& input = graph.input(node, 0);
    if (input.producer < 0 || input.readers.size() != 1) continue;
    const std::string& producer = graph.nodes[static_cast<std::size_t>(input.producer)].path;
    if (calls[producer] != 1 || node.path.empty() || producer.empty()) continue;
    const auto* norm = dynamic_cast<BatchNorm*>(&model.at(node.path));
    if (norm == nullptr || !fold_pair(model.at(producer), *norm)) continue;
    model.replace(node.path, make_identity());
    folded.push_back(node.path);
  }
  return folded;
}

}  // namespace fq
