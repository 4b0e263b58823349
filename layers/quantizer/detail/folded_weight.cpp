#include "fakequant/layers/quantizer/detail/folded_weight.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/tape.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq::detail {
namespace {

/// Calls f(w[i], i, channel) for every element, with channels along `axis`.
template <class F>
void visit_channels(Tensor& w, int axis, F&& f) {
  const AxisView view = axis_view(w.shape(), axis);
  auto* values = w.mutable_data<float>();
  for (std::int64_t o = 0; o < view.outer; ++o)
    for (std::int64_t c = 0; c < view.size; ++c)
      for (std::int64_t i = 0; i < view.inner; ++i) {
        const std::int64_t at = (o * view.size + c) * view.inner + i;
        f(values[at], at, static_cast<std::size_t>(c));
      }
}

/// Whether the weight can keep its codes: symmetric integers with free scales, per tensor or per channel.
bool is_exact(const QuantizedTensor& w, int axis, std::size_t channels) {
  const Grid& grid = w.grid;
  const auto ranges = static_cast<std::size_t>(grid.amax.numel());
  const bool by_channel =
      ranges == channels && (ranges == 1 || grid.granularity.single_axis(w.codes.rank()) == axis);
  return grid.format.is_integer() && grid.format.lower() == -grid.format.bound() && !grid.raised &&
         grid.scale_bits == 0 && (by_channel || grid.granularity.is_per_tensor());
}

/// Returns the scale of the layer's input if it is one known number, else 0.
float input_scale(const QuantModule& layer) {
  const auto inputs = layer.input_quantizers();
  if (inputs.empty()) return 0;
  const TensorQuantizer& q = *inputs.front();
  if (!q.enabled() || !q.quantizing() || !q.descriptor().format().is_integer() ||
      !q.descriptor().needs_amax() || !q.amax().defined() || q.amax().numel() != 1)
    return 0;
  return q.grid().scale.to_vector<float>().front();
}

// Without a known input scale nothing decides whether a channel is silent.
FoldedRange fold_channel_range(const FoldedChannel& channel, float amax, float bound, float x_scale) {
  if (x_scale > 0) return folded_range(channel, amax, bound, x_scale);
  return {amax * std::abs(channel.factor), false};
}

/// Sets a fixed range for each channel instead of the `before` ranges, with scale_amax included. Binary
/// weights become plain integers and keep their codes -1 and 1.
void set_channel_ranges(TensorQuantizer& q, int axis, std::size_t before, const std::vector<float>& ranges) {
  auto options = q.descriptor().options();
  // One range became one per channel.
  if (before < ranges.size()) {
    options.axis = Axes(axis);
    options.block_sizes = {};
    options.amax = {};
  }
  options.dynamic = false;
  options.scale_amax.reset();
  q.update([&](QuantParams& params) {
    params.descriptor = QuantDescriptor(std::move(options));
    params.weight_scheme = &plain_weights();
  });
  const Tensor amax = Tensor::from(ranges, {static_cast<std::int64_t>(ranges.size())});
  const Tensor known = q.amax();
  // In reference arithmetic ranges keep their shape.
  q.set_amax(known.defined() && known.numel() == amax.numel() ? amax.reshape(known.shape()) : amax);
}

/// Multiplies the weight and its ranges by the factors, and keeps the codes of `before`.
void fold_codes(QuantModule& layer, int axis, const std::vector<FoldedChannel>& channels,
                const QuantizedTensor& before) {
  TensorQuantizer& q = *layer.weight_quantizer();
  const float bound = before.grid.format.bound(), x_scale = input_scale(layer);
  const auto amax = before.grid.amax.to_vector<float>(), codes = code_values(before).to_vector<float>();
  std::vector<FoldedRange> ranges;
  std::vector<float> now;
  for (std::size_t c = 0; c < channels.size(); ++c) {
    ranges.push_back(fold_channel_range(channels[c], amax[amax.size() == 1 ? 0 : c], bound, x_scale));
    now.push_back(ranges.back().amax);
  }
  // The range of a silent channel is chosen for its bias, so a range taken from the weight cannot express it.
  const bool silent = std::ranges::any_of(ranges, &FoldedRange::silent);
  if (q.descriptor().needs_amax() || silent || amax.size() < now.size())
    set_channel_ranges(q, axis, amax.size(), now);
  const WeightScheme& scheme = *q.params().weight_scheme;
  Variable weight = layer.quantized_weight();
  scale_channels(weight, axis, channels);
  visit_channels(weight.mutable_tensor(), axis, [&](float& w, std::int64_t i, std::size_t c) {
    // A zero range has codes of 0 for any weight.
    if (now[c] <= least_amax) return;
    const float code = codes[static_cast<std::size_t>(i)];
    // A range has no sign: a negative factor goes into the codes.
    const float wanted = ranges[c].silent ? 0.0f : channels[c].factor < 0 ? -code : code;
    w = scheme.weight_with_code(w, wanted, now[c], bound);
  });
}

/// Multiplies ranges per channel by the factors, and recomputes other ranges from the weight.
void move_ranges(const QuantModule& layer, const std::vector<FoldedChannel>& channels) {
  const Tensor weight = layer.quantized_weight().tensor();
  for (TensorQuantizer* q : quantizer_parts(*layer.weight_quantizer())) {
    if (!q->descriptor().needs_amax() || q->descriptor().has_dynamic_blocks() || !q->amax().defined())
      continue;
    Tensor ranges = flat_ranges(q->amax());
    if (q->descriptor().block_sizes().empty() &&
        ranges.numel() == static_cast<std::int64_t>(channels.size())) {
      auto* amax = ranges.mutable_data<float>();
      for (std::size_t c = 0; c < channels.size(); ++c) amax[c] *= std::abs(channels[c].factor);
    } else {
      ranges = compute_ranges(weight, BlockView::of(q->descriptor(), weight.shape()), q->name());
    }
    q->set_amax(ranges.reshape(q->amax().shape()));
  }
}

/// Returns the codes of the current weight; undefined if its quantizer gives floats.
Variable current_codes(const QuantModule& layer) {
  TensorQuantizer& q = *layer.weight_quantizer();
  // Before calibration there are no codes to keep.
  const bool known = !q.descriptor().needs_amax() || q.amax().defined();
  if (!known || !q.enabled() || !q.quantizing() || q.params().pre_quant_scale.defined() ||
      dynamic_cast<SequentialQuantizer*>(&q) != nullptr)
    return {};
  const NoGrad no_grad;
  return q.weight(layer.quantized_weight());
}

}  // namespace

void scale_channels(Variable weight, int axis, const std::vector<FoldedChannel>& channels) {
  visit_channels(weight.mutable_tensor(), axis,
                 [&](float& w, std::int64_t, std::size_t c) { w *= channels[c].factor; });
}

void fold_into_weight(QuantModule& layer, int axis, const std::vector<FoldedChannel>& channels) {
  const Variable codes = current_codes(layer);
  const QuantizedTensor* before = codes.defined() ? codes.quantized() : nullptr;
  if (before != nullptr && is_exact(*before, axis, channels.size()))
    return fold_codes(layer, axis, channels, *before);
  scale_channels(layer.quantized_weight(), axis, channels);
  move_ranges(layer, channels);
}

}  // namespace fq::detail
