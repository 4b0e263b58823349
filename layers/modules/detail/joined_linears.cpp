#include "fakequant/layers/modules/detail/joined_linears.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <typeinfo>

#include "fakequant/core/detail/device_traits.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/tape.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"

namespace fq::detail {
namespace {

using Layers = std::vector<const QuantLinear*>;

/// Whether the module's call has no other effect than its product, and another quantizer does not follow.
bool is_plain(const QuantLinear& layer) {
  constexpr std::int64_t aligned = 128;  // elements of codes that can be adjacent, see quantize
  const QuantParams& output = layer.output_quantizer()->params();
  return layer.weight().numel() % aligned == 0 && !layer.checkpointed() && !output.enabled &&
         !output.pre_quant_scale.defined() && layer.weight_quantizer()->keeps_weight(layer.weight());
}

/// Whether both layers can share a product, regardless of their codes.
bool agree(const QuantLinear& a, const QuantLinear& b) {
  const auto same_gradient = [](const Variable& x, const Variable& y) {
    return x.defined() == y.defined() && (!x.defined() || x.requires_grad() == y.requires_grad());
  };
  return a.input_quantizers()[0].get() == b.input_quantizers()[0].get() &&
         a.weight().dim(1) == b.weight().dim(1) && same_gradient(a.weight(), b.weight()) &&
         same_gradient(a.bias(), b.bias());
}

/// Returns the layers with their types, or an empty list if they must run by themselves.
Layers joinable(const std::vector<const Linear*>& modules) {
  Layers out;
  for (const Linear* module : modules) {
    // A derived class may compute something else.
    if (module == nullptr || typeid(*module) != typeid(QuantLinear)) return {};
    const auto* layer = static_cast<const QuantLinear*>(module);
    if (!is_plain(*layer) || !agree(*layer, out.empty() ? *layer : *out.front())) return {};
    out.push_back(layer);
  }
  const TensorQuantizer* input = out.front()->input_quantizers()[0].get();
  return input != nullptr && input->is_constant() ? out : Layers();
}

bool same_steps(const Grid& a, const Grid& b) {
  return a.format == b.format && a.granularity == b.granularity && a.zero_point == b.zero_point &&
         a.pass_through_bwd == b.pass_through_bwd && a.scale_bits == b.scale_bits && a.raised == b.raised;
}

/// Returns the codes of the weights, cached if they were not. Returns an empty list unless all are integers
/// with one scale for each row.
std::vector<QuantizedTensor> row_codes(const Layers& layers) {
  const std::vector<const QuantModule*> modules(layers.begin(), layers.end());
  quantize_weights(modules);
  std::vector<QuantizedTensor> out;
  for (const auto* layer : layers) {
    const auto w = layer->weight_quantizer()->weight_codes().kept(layer->weight());
    if (!w || !w->grid.format.is_integer() || w->grid.granularity.single_axis(2) != 0) return {};
    if (w->grid.scale.numel() != w->codes.dim(0) || !same_steps(w->grid, (out.empty() ? *w : out[0]).grid))
      return {};
    out.push_back(*w);
  }
  return out;
}

/// Returns one tensor of all parts, or an undefined tensor if they are not adjacent.
Tensor adjacent(const std::vector<QuantizedTensor>& parts, Tensor QuantizedTensor::*member) {
  std::vector<Tensor> tensors;
  for (const auto& part : parts) tensors.push_back(part.*member);
  return adjacent_rows(tensors);
}

/// Returns codes whose rows follow each other in memory, or an empty list if the weights cannot be joined.
std::vector<QuantizedTensor> adjacent_codes(const Layers& layers) {
  auto out = row_codes(layers);
  if (out.empty() || adjacent(out, &QuantizedTensor::codes).defined()) return out;
  // Layers that ran by themselves, as in calibration, made these codes. Quantizes the weights again,
  // together.
  for (const auto* layer : layers) layer->weight_quantizer()->weight_codes().forget();
  out = row_codes(layers);
  return adjacent(out, &QuantizedTensor::codes).defined() ? out : std::vector<QuantizedTensor>();
}

/// Returns vectors one after another, as an operator.
Variable joined(const std::vector<Variable>& parts) {
  std::vector<Tensor> values;
  std::vector<std::int64_t> rows;
  for (const auto& part : parts) {
    values.push_back(part.tensor());
    rows.push_back(part.dim(0));
  }
  return record("concat", join(values, 0), parts, [rows](const Tensor& dy) { return split_rows(dy, rows); });
}

}  // namespace

/// Returns the grid of all rows. It is made once for the grids of the weights, which share it.
Grid JoinedLinears::joined_grid(const std::vector<QuantizedTensor>& weights) const {
  const std::scoped_lock lock(mutex_);
  const bool known = std::ranges::equal(scales_, weights, [](const Tensor& scale, const QuantizedTensor& w) {
    return scale.storage().shares(w.grid.scale.storage());
  });
  if (known) return grid_;
  std::vector<Tensor> scales, ranges;
  std::string names;
  for (const auto& w : weights) {
    scales.push_back(w.grid.scale.reshape({-1}));
    ranges.push_back(w.grid.amax.reshape({-1}));
    names += (names.empty() ? "" : ", ") + w.grid.name;
  }
  grid_ = weights.front().grid;
  grid_.scale = join(scales, 0);
  grid_.amax = join(ranges, 0);
  grid_.name = names;
  scales_ = scales;
  return grid_;
}

Variable JoinedLinears::products(const Variable& x, const std::vector<const Linear*>& modules) const {
  if (!device_traits(x.device()).launches || recorder() != nullptr || context().call_cache != nullptr)
    return {};
  const Layers layers = joinable(modules);
  if (layers.empty()) return {};
  const auto weights = adjacent_codes(layers);
  if (weights.empty()) return {};
  QuantizedTensor codes{adjacent(weights, &QuantizedTensor::codes), joined_grid(weights),
                        adjacent(weights, &QuantizedTensor::mask)};
  const Variable input = layers.front()->input_quantizers()[0](x);
  std::vector<Variable> parameters, biases;
  for (const auto* layer : layers) {
    parameters.push_back(layer->weight());
    if (layer->bias().defined()) biases.push_back(layer->bias());
  }
  const Variable w = ops::attach_joined_codes(parameters, std::move(codes));
  if (code_kind(input, w, 0) != CodeKind::integers) return {};
  return ops::linear(input, w, biases.empty() ? Variable() : joined(biases));
}

}  // namespace fq::detail
