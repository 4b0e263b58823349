#include "fakequant/train/sensitivity/detail/owned_quantizers.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "fakequant/layers/modules/quant_recurrent.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"
#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq {
namespace detail {
namespace {

// A sequence of quantizers quantizes if it and one of its parts are enabled.
bool is_on(TensorQuantizer& quantizer) {
  const auto is_enabled = [](const TensorQuantizer* part) { return part->params().enabled; };
  return is_enabled(&quantizer) && std::ranges::any_of(quantizer_parts(quantizer), is_enabled);
}

/// Returns the short name of a quantizer: "weight" for "conv1.weight_quantizer".
std::string short_name(const std::string& path) {
  const std::string last = path.substr(path.rfind('.') + 1);
  return last.substr(0, last.find("_quantizer"));
}

}  // namespace

bool QuantizedLayer::quantizes() const {
  return std::ranges::any_of(quantizers, [](const auto& slot) { return is_on(slot_quantizer(slot)); });
}

TensorQuantizer& slot_quantizer(const ModuleSlot& slot) {
  return dynamic_cast<TensorQuantizer&>(*slot->module);
}

std::vector<QuantizedLayer> quantized_layers(Module& model) {
  std::vector<QuantizedLayer> out;
  std::set<const Module*> known;
  for (auto& [path, module] : model.named_modules()) {
    if (dynamic_cast<TensorQuantizer*>(module) != nullptr || !known.insert(module).second) continue;
    QuantizedLayer layer{path, module};
    for (const auto& [name, slot] : module->named_slots())
      // A name with a dot is a slot of a submodule, which is a layer of its own.
      if (name.find('.') == std::string::npos &&
          dynamic_cast<TensorQuantizer*>(slot->module.get()) != nullptr)
        layer.quantizers.push_back(slot);
    if (!layer.quantizers.empty()) out.push_back(std::move(layer));
  }
  return out;
}

std::shared_ptr<TensorQuantizer> switched_off(TensorQuantizer& quantizer) {
  std::shared_ptr<TensorQuantizer> off;
  if (dynamic_cast<SequentialQuantizer*>(&quantizer) != nullptr) {
    std::vector<std::shared_ptr<TensorQuantizer>> parts;
    for (auto* part : quantizer_parts(quantizer)) parts.push_back(switched_off(*part));
    off = std::make_shared<SequentialQuantizer>(std::move(parts));
    off->set_enabled(quantizer.enabled());
  } else {
    QuantParams params;
    params.enabled = false;
    // The weights have been scaled for it: without it, the float output would change.
    params.pre_quant_scale = quantizer.params().pre_quant_scale;
    off = std::make_shared<TensorQuantizer>(std::move(params));
  }
  off->set_name(quantizer.name());
  return off;
}

std::string format_text(const QuantizedLayer& layer) {
  std::vector<std::string> texts;
  for (const auto& [name, slot] : layer.module->named_slots()) {
    auto* quantizer = dynamic_cast<TensorQuantizer*>(slot->module.get());
    if (quantizer == nullptr || name.find('.') != std::string::npos || !is_on(*quantizer)) continue;
    texts.push_back(short_name(name) + " " + to_string(coding_part(*quantizer).descriptor().format()));
  }
  // Weights first.
  std::ranges::sort(texts, {}, [](const std::string& text) { return !text.starts_with("weight"); });
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace detail

namespace {

/// Returns the average over all matrices.
double weight_bits(const QuantRecurrent& layer) {
  double bits = 0;
  for (const auto& matrix : layer.matrices())
    bits += weight_bits(static_cast<const Module&>(*matrix)) *
            static_cast<double>(matrix->quantized_weight().numel());
  return bits / static_cast<double>(detail::weight_elements(layer));
}

}  // namespace

std::int64_t detail::weight_elements(const Module& layer) {
  if (const auto* recurrent = dynamic_cast<const QuantRecurrent*>(&layer)) {
    std::int64_t count = 0;
    for (const auto& matrix : recurrent->matrices()) count += matrix->quantized_weight().numel();
    return count;
  }
  const auto* quant = dynamic_cast<const QuantModule*>(&layer);
  return quant != nullptr && quant->quantized_weight().defined() ? quant->quantized_weight().numel() : 0;
}

double weight_bits(const Module& layer) {
  if (const auto* recurrent = dynamic_cast<const QuantRecurrent*>(&layer)) return weight_bits(*recurrent);
  const auto* quant = dynamic_cast<const QuantModule*>(&layer);
  TensorQuantizer* weight = quant != nullptr ? quant->weight_quantizer() : nullptr;
  if (weight == nullptr || !detail::is_on(*weight)) return kFloatWeightBits;
  const QuantDescriptor& descriptor = coding_part(*weight).descriptor();
  double bits = descriptor.format().bits();
  if (!descriptor.block_sizes().scale_bits) return bits;
  double block = 1;
  for (const auto& [axis, length] : descriptor.block_sizes().lengths) block *= static_cast<double>(length);
  // A block scale has 8 bits, shared by the elements of the block.
  return block > 0 ? bits + 8 / block : bits;
}

}  // namespace fq
