#include "fakequant/train/sensitivity/detail/format_variants.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/sensitivity/detail/owned_quantizers.h"
#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq::detail {
namespace {

/// Returns the current modules of the model's slots.
Swaps modules_in_slots(Module& model) {
  Swaps out;
  for (const auto& [path, slot] : model.named_slots()) out.emplace_back(slot, slot->module);
  return out;
}

/// Returns the position of each layer in the order of execution, for layers that occur in a trace.
std::map<std::string, std::size_t> layer_positions(Module& model, const Shape& input_shape) {
  std::map<std::string, std::size_t> out;
  // The first operator of a layer decides its position.
  for (const auto& node : trace(model, input_shape).nodes) out.try_emplace(node.path, out.size());
  return out;
}

/// Groups of layers, identified by their first layer.
class LayerGroups {
 public:
  explicit LayerGroups(std::size_t layers) : first_(layers) { std::iota(first_.begin(), first_.end(), 0U); }
  [[nodiscard]] std::size_t of(std::size_t layer) const noexcept {
    while (first_[layer] != layer) layer = first_[layer];
    return layer;
  }
  void tie(std::size_t a, std::size_t b) {
    const auto [low, high] = std::minmax({of(a), of(b)});
    // The smaller index is the representative, so that groups are numbered in the order of execution.
    first_[high] = low;
  }

 private:
  std::vector<std::size_t> first_;
};

// A quantizer that several layers read has one format: these layers change together.
void tie_shared(const std::vector<VariableLayer>& layers, LayerGroups& groups) {
  std::map<const Module*, std::size_t> first_reader;
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (const auto& module : layers[i].modules)
      for (const auto& [name, slot] : module->named_slots())
        if (dynamic_cast<const TensorQuantizer*>(slot->module.get()) != nullptr)
          groups.tie(first_reader.try_emplace(slot->module.get(), i).first->second, i);
}

// Layers without weights have no bits and would make choices that cost nothing.
void tie_weightless(const std::vector<VariableLayer>& layers, LayerGroups& groups) {
  std::vector<std::int64_t> weights(layers.size(), 0);
  for (std::size_t i = 0; i < layers.size(); ++i) weights[groups.of(i)] += layers[i].weights;
  for (std::size_t i = 1; i < layers.size(); ++i)
    if (weights[groups.of(i)] == 0) groups.tie(i - 1, i);
}

void number_groups(std::vector<VariableLayer>& layers, const LayerGroups& groups) {
  std::map<std::size_t, int> numbers;
  for (std::size_t i = 0; i < layers.size(); ++i)
    layers[i].group = numbers.try_emplace(groups.of(i), static_cast<int>(numbers.size())).first->second;
}

/// Returns the layer at a path, with its module in each format.
VariableLayer make_variable_layer(const std::string& path, const ModuleSlot& slot,
                                  const std::vector<FormatVariant>& variants) {
  VariableLayer out{path, slot};
  for (const auto& variant : variants) {
    const auto found = variant.find(path);
    out.modules.push_back(found == variant.end() ? slot->module : found->second);
    out.weights = std::max(out.weights, weight_elements(*out.modules.back()));
  }
  return out;
}

/// Quantizes the model and returns the modules that changed.
FormatVariant quantized_modules(Module& model, const QuantConfig& config, const Shape& input_shape) {
  const auto slots = model.named_slots();
  std::vector<const Module*> before;
  for (const auto& [path, slot] : slots) before.push_back(slot->module.get());
  (void)quantize(model, config, input_shape);
  FormatVariant out;
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (slots[i].second->module.get() != before[i]) out[slots[i].first] = slots[i].second->module;
  return out;
}

}  // namespace

FormatVariant quantized_variant(Module& model, const QuantConfig& config, const Shape& input_shape) {
  const SwapScope float_again(modules_in_slots(model));
  return quantized_modules(model, config, input_shape);
}

FormatVariant format_variant(Module& model, const QuantConfig& config, DataLoader& data,
                             std::int64_t samples) {
  const SwapScope float_again(modules_in_slots(model));
  FormatVariant out = quantized_modules(model, config, ptq::loader_input_shape(data));
  // A format without an effect needs no pass over the data.
  if (out.empty()) return out;
  (void)calibrate(model, data, {.amax = config.amax, .samples = samples, .rules = config.calibration});
  for (const auto& adjustment : config.postprocess) (void)postprocess_amax(model, adjustment);
  return out;
}

std::vector<VariableLayer> variable_layers(Module& model, const std::vector<FormatVariant>& variants,
                                           const Shape& input_shape) {
  std::vector<VariableLayer> out;
  for (const auto& [path, slot] : model.named_slots())
    if (std::ranges::any_of(variants, [&, &at = path](const auto& variant) { return variant.contains(at); }))
      out.push_back(make_variable_layer(path, slot, variants));
  const auto place = layer_positions(model, input_shape);
  std::ranges::stable_sort(out, {}, [&](const VariableLayer& layer) {
    const auto found = place.find(layer.path);
    return found == place.end() ? place.size() : found->second;
  });
  LayerGroups groups(out.size());
  tie_shared(out, groups);
  tie_weightless(out, groups);
  number_groups(out, groups);
  return out;
}

double fewest_bits(const std::vector<VariableLayer>& layers, const std::vector<bool>& floats) {
  std::map<int, std::vector<std::optional<double>>> bits;  // bits of each group, by format
  double weights = 0, sum = 0;
  for (const auto& layer : layers) {
    weights += static_cast<double>(layer.weights);
    // A format exists in a group if it quantizes a layer of it, or is the float format.
    auto& formats = bits.try_emplace(layer.group, floats.size()).first->second;
    for (std::size_t f = 0; f < floats.size(); ++f)
      if (floats[f] || layer.modules[f] != layer.slot->module) formats[f] = 0;
  }
  for (const auto& layer : layers)
    for (std::size_t f = 0; f < floats.size(); ++f)
      if (auto& found = bits[layer.group][f]; found && layer.weights > 0)
        *found += static_cast<double>(layer.weights) * weight_bits(*layer.modules[f]);
  for (const auto& [group, formats] : bits) {
    double fewest = std::numeric_limits<double>::infinity();
    for (const auto& found : formats) fewest = std::min(fewest, found.value_or(fewest));
    sum += fewest;
  }
  return weights == 0 ? 0 : sum / weights;
}

}  // namespace fq::detail
