#include "fakequant/layers/quantizer/compress.h"

#include <algorithm>
#include <map>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/quantized.h"
#include "fakequant/core/tape.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq {
namespace {

constexpr std::string_view kCompress = "compress";

/// A layer whose weight quantizer gives codes.
struct Coded {
  std::string path;
  const QuantModule* layer;
  TensorQuantizer* quantizer;

  [[nodiscard]] Variable weight() const { return layer->quantized_weight(); }
};

std::vector<Coded> coded_layers(Module& model) {
  std::vector<Coded> out;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* layer = dynamic_cast<const QuantModule*>(module);
    auto* quantizer = layer != nullptr ? layer->weight_quantizer() : nullptr;
    if (quantizer == nullptr || !layer->quantized_weight().defined()) continue;
    // The last enabled part of a sequential quantizer has the codes.
    auto& part = coding_part(*quantizer);
    const bool on = quantizer->enabled() && part.enabled();
    if (on || holds_codes(layer->quantized_weight())) out.push_back({path, layer, &part});
  }
  return out;
}

/// Sets the value of a weight and drops cached forms of the old value. Codes have no gradient.
void replace(Variable weight, Tensor value) {
  weight.set_requires_grad(is_floating(value.dtype()));
  weight.set_tensor(std::move(value));
  weight.node()->quantized.clear();
  weight.node()->as_float.reset();
}

// Scales that no stored amax determines must be stored with the codes.
bool has_own_scales(const TensorQuantizer& q) {
  return !q.descriptor().needs_amax() || q.descriptor().has_dynamic_blocks();
}

/// A compressed weight, before it replaces the float weight.
struct Packed {
  Coded coded;
  Grid grid;
  Tensor codes;
  PackedScales scales;
};

/// Returns the codes and scales of a layer's weight. Leaves the model unchanged.
Packed pack(const Coded& coded) {
  const TensorQuantizer& q = *coded.quantizer;
  FQ_CHECK(!q.params().pre_quant_scale.defined(), kCompress,
           "{} scales the weight before it quantizes it: multiply the weight by it first",
           detail::quantizer_label(q.name()));
  q.params().weight_scheme->check_packing(q.name());
  const QuantizedTensor codes = weight_codes(*coded.layer);
  // Codes of 4 bits and less are computed one per byte and packed here.
  const bool small = bit_width(packed_dtype(codes.grid.format)) < bit_width(codes.codes.dtype());
  return {coded, codes.grid, small ? pack_codes(codes.codes, packed_dtype(codes.grid.format)) : codes.codes,
          has_own_scales(q) ? pack_scales(codes.grid) : PackedScales{}};
}

/// One parameter may be the weight of several layers, if all of them see the same values.
void check_readers(Module& model, const std::vector<Packed>& all) {
  std::map<const void*, std::vector<const Packed*>> readers;
  for (const auto& packed : all) readers[packed.coded.weight().node().get()].push_back(&packed);
  // A tied weight appears once per name. More names than quantized layers means that a module reads it as
  // floats.
  std::map<const void*, std::size_t> uses;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const auto found = readers.find(parameter.node().get());
    if (found == readers.end()) continue;
    FQ_CHECK(++uses[found->first] <= found->second.size(), kCompress,
             "'{}' is read as floats too: quantize all of its readers alike, or none", name);
    for (const Packed* other : found->second)
      FQ_CHECK(same_grid(other->grid, found->second[0]->grid), kCompress,
               "'{}' is read on another grid by '{}': quantize all of its readers alike, or none", name,
               other->coded.path);
  }
}

CompressedWeight report(const Coded& coded, const std::string& name) {
  const TensorQuantizer& q = *coded.quantizer;
  const Tensor codes = coded.weight().tensor();
  const bool own = q.weight_codes().scales().defined();
  return {name, q.descriptor().format(), codes.numel(), codes.nbytes(),
          own ? q.weight_codes().scales().nbytes() : 4 * q.amax().numel()};
}

std::vector<CompressedWeight> reports(Module& model) {
  std::map<const void*, Coded> layers;
  for (const auto& coded : coded_layers(model)) layers.emplace(coded.weight().node().get(), coded);
  std::vector<CompressedWeight> out;
  for (const auto& [name, parameter] : model.named_parameters()) {
    // extract: a tied weight is reported once, under its first name.
    const auto found = layers.extract(parameter.node().get());
    if (!found.empty() && holds_codes(parameter)) out.push_back(report(found.mapped(), name));
  }
  return out;
}

}  // namespace

std::vector<CompressedWeight> compress(Module& model) {
  const auto layers = coded_layers(model);
  FQ_CHECK(!layers.empty(), kCompress, "the model has no quantized weight: quantize and calibrate it first");
  std::vector<Packed> all;
  for (const auto& coded : layers)
    // All weights are packed and checked before the first one is replaced, so that an error leaves the model
    // unchanged.
    if (!holds_codes(coded.weight())) all.push_back(pack(coded));
  check_readers(model, all);
  for (auto& [coded, grid, codes, scales] : all) {
    coded.quantizer->weight_codes().set_scales(std::move(scales));
    replace(coded.weight(), std::move(codes));
  }
  return reports(model);
}

void decompress(Module& model) {
  const auto layers = coded_layers(model);
  for (const auto& coded : layers) {
    if (!holds_codes(coded.weight())) continue;
    replace(coded.weight(), dequantize(coded.quantizer->weight_codes().unpack(coded.weight().tensor())));
  }
  // For all layers: the loop skips a tied weight after its first layer.
  for (const auto& coded : layers) coded.quantizer->weight_codes().set_scales({});
}

QuantizedTensor weight_codes(const QuantModule& layer) {
  constexpr std::string_view where = "weight_codes";
  auto* quantizer = layer.weight_quantizer();
  const Variable weight = layer.quantized_weight();
  FQ_CHECK(quantizer != nullptr && weight.defined(), where, "the layer has no weight");
  if (holds_codes(weight)) return coding_part(*quantizer).weight_codes().unpack(weight.tensor());
  const NoGrad no_grad;
  const Variable codes = quantizer->weight(weight);
  FQ_CHECK(codes.quantized() != nullptr, where,
           "{} gives floats, not codes: enable it, with arithmetic deployed and fake_quant",
           detail::quantizer_label(coding_part(*quantizer).name()));
  return {codes.quantized()->codes, codes.quantized()->grid, {}};
}

void check_weight(const QuantModule& layer, const Tensor& value) {
  constexpr std::string_view where = "set_weight";
  const Variable weight = layer.quantized_weight();
  FQ_CHECK(layer.weight_quantizer() != nullptr && weight.defined(), where, "the layer has no weight");
  const TensorQuantizer& q = coding_part(*layer.weight_quantizer());
  FQ_CHECK(value.shape() == weight.shape(), where, "the weight of {} is {}, the new one {}",
           detail::quantizer_label(q.name()), to_string(weight.shape()), to_string(value.shape()));
  if (is_floating(value.dtype())) return;
  const QuantizedTensor codes = q.weight_codes().unpack(value);
  const Format& format = codes.grid.format;
  for (const float code : code_values(codes).to_vector<float>())
    FQ_CHECK(code >= format.lower() && code <= format.bound(), where,
             "the weight of {} has a code of {}, {} has {} to {}", detail::quantizer_label(q.name()), code,
             to_string(format), format.lower(), format.bound());
}

void set_weight(const QuantModule& layer, const Tensor& value) {
  check_weight(layer, value);
  replace(layer.quantized_weight(), value.clone());
}

bool holds_codes(const Variable& parameter) {
  const auto* value = parameter.defined() ? std::get_if<Tensor>(&parameter.value()) : nullptr;
  return value != nullptr && !is_floating(value->dtype());
}

bool is_compressed(const Module& model) {
  return std::ranges::any_of(model.named_parameters(),
                             [](const auto& entry) { return holds_codes(entry.second); });
}

void check_not_compressed(const Module& model, std::string_view function) {
  for (const auto& [name, parameter] : model.named_parameters())
    FQ_CHECK(!holds_codes(parameter), function,
             "'{}' holds codes: do this before compress(), or decompress() the model first", name);
}

void quantize_weights(Module& model) {
  std::vector<const QuantModule*> layers;
  for (const auto& [path, module] : model.named_modules())
    if (const auto* layer = dynamic_cast<const QuantModule*>(module)) layers.push_back(layer);
  quantize_weights(layers);
}

void quantize_weights(std::span<const QuantModule* const> layers) {
  struct Weight {
    TensorQuantizer* quantizer;
    Variable value;
  };
  std::vector<Weight> weights;
  std::vector<QuantizeRequest> requests;
  for (const QuantModule* layer : layers) {
    TensorQuantizer* quantizer = layer->weight_quantizer();
    if (quantizer == nullptr || dynamic_cast<SequentialQuantizer*>(quantizer) != nullptr) continue;
    const Variable value = layer->quantized_weight();
    auto request = value.defined() ? quantizer->weight_codes().request(value) : std::nullopt;
    if (!request) continue;
    weights.push_back({quantizer, value});
    requests.push_back(std::move(*request));
  }
  // One call for all weights: on a GPU this is one kernel launch instead of one per weight.
  auto codes = quantize(requests);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i].quantizer->weight_codes().keep(weights[i].value, std::move(codes[i]));
}

}  // namespace fq
