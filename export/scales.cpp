#include "fakequant/export/scales.h"

#include <bit>
#include <map>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/variable.h"
#include "fakequant/layers/modules/detail/layer_product.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq {
namespace {

using nlohmann::json;

json format_json(const Format& format) {
  if (!format.is_integer())
    return {{"type", "float"},
            {"exponent", format.floating().exponent},
            {"mantissa", format.floating().mantissa}};
  const IntFormat& f = format.integer();
  return {{"type", "int"}, {"bits", f.bits}, {"unsigned", f.is_unsigned}, {"narrow_range", f.narrow_range}};
}

// A single scale is a number and not a list of one element, so the JSON type shows the granularity.
json values_json(const Tensor& values) {
  return values.rank() == 0 ? json(values.item()) : json(values.to_vector<float>());
}

json granularity_json(const QuantDescriptor& descriptor) {
  if (!descriptor.block_sizes().empty()) return {{"blocks", descriptor.dict()["block_sizes"]}};
  const auto& axes = descriptor.axis().values();
  if (axes.empty()) return "tensor";
  return {{"axis", axes.size() == 1 ? json(axes[0]) : json(axes)}};
}

/// Layers by the quantizer of their weight.
using Weights = std::map<const TensorQuantizer*, const QuantModule*>;

/// Whether the quantizer has static scales.
bool has_scales(const TensorQuantizer& q) {
  const QuantDescriptor& d = q.descriptor();
  return q.enabled() && (q.params().weight_scheme->has_scales_without_range() ||
                         (d.needs_amax() && !d.has_dynamic_blocks()));
}

// Returns the grid of a quantizer with static scales. Binary weights have no range: their scale is the mean
// magnitude of the weight, so the grid comes with the codes.
Grid quantizer_grid(const TensorQuantizer& q, const Weights& weights) {
  return q.params().weight_scheme->has_scales_without_range() ? weight_codes(*weights.at(&q)).grid : q.grid();
}

json quantizer_json(const NamedQuantizer& entry, const Weights& weights) {
  const TensorQuantizer& q = *entry.quantizer;
  const bool each_input = q.descriptor().dynamic() || q.descriptor().has_dynamic_blocks();
  json out{{"name", entry.name},
           {"aliases", entry.aliases},
           {"enabled", q.enabled()},
           {"format", format_json(q.descriptor().format())},
           {"granularity", granularity_json(q.descriptor())},
           {"dynamic", each_input && !has_scales(q)},
           {"zero_point", q.params().zero_point}};
  if (has_scales(q)) {
    const Grid grid = quantizer_grid(q, weights);
    out["amax"] = values_json(grid.amax);
    out["scale"] = values_json(grid.scale);
  } else if (q.enabled() && q.amax().defined()) {
    // Dynamic blocks with a range of the whole tensor (NVFP4): each block has its own scale at run time.
    out["amax"] = values_json(q.amax());
  }
  return out;
}

Weights weight_modules(Module& model) {
  Weights out;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* quant = dynamic_cast<QuantModule*>(module);
    if (quant == nullptr || quant->weight_quantizer() == nullptr) continue;
    // Parts of a sequential quantizer are listed one by one, as in `named_quantizers`.
    for (const auto* part : quantizer_parts(*quant->weight_quantizer())) out[part] = quant;
  }
  return out;
}

void add_shapes(json& entry, const TensorQuantizer& q, const Shape& weight) {
  entry["shape"] = weight;
  if (!has_scales(q)) return;
  // An amax of one element gives one scale, even if the descriptor keeps an axis.
  const bool one = entry["scale"].is_number();
  const auto by =
      one ? Granularity::per_tensor() : q.descriptor().granularity(static_cast<int>(weight.size()));
  entry["block"] = by.block_shape(weight);
  entry["scale_shape"] = by.scale_shape(weight);
}

json layer_json(const std::string& name, const LayerSums& sums) {
  json out{{"name", name}, {"sum_scale", values_json(sums.scale)}};
  if (sums.bias.defined()) out["bias_codes"] = sums.bias.to_vector<std::int32_t>();
  return out;
}

using Layers = std::vector<std::pair<std::string, LayerSums>>;

Layers layers_with_sums(Module& model) {
  Layers out;
  for (const auto& [path, module] : model.named_modules())
    if (const auto sums = layer_sums(*module)) out.emplace_back(path, *sums);
  return out;
}

std::string below(const std::string& path, const char* name) {
  return path.empty() ? name : path + "/" + name;
}

std::string json_text(Module& model, const ClipCounts& clips) {
  return scales_json(model, clips).dump(2) + "\n";
}

StateDict scales_state(Module& model, const ClipCounts& clips) {
  const detail::OnHost host(model);
  StateDict state;
  const Weights weights = weight_modules(model);
  state.set_attribute("scales", scales_json(model, clips));
  visit_quantizers(model, [&](const NamedQuantizer& entry) {
    const TensorQuantizer& q = *entry.quantizer;
    if (!has_scales(q)) return;
    const Grid grid = quantizer_grid(q, weights);
    state.set(below(entry.name, "amax"), grid.amax);
    state.set(below(entry.name, "scale"), grid.scale);
    state.set(below(entry.name, "zero_point"), Tensor::scalar(q.params().zero_point, DType::i32));
  });
  for (const auto& [name, sums] : layers_with_sums(model)) {
    state.set(below(name, "sum_scale"), sums.scale);
    if (sums.bias.defined()) state.set(below(name, "bias_codes"), sums.bias);
  }
  return state;
}

}  // namespace

json scales_json(Module& model, const ClipCounts& clips) {
  const detail::OnHost host(model);
  json quantizers = json::array(), layers = json::array();
  const Weights weights = weight_modules(model);
  visit_quantizers(model, [&](const NamedQuantizer& entry) {
    json& out = quantizers.emplace_back(quantizer_json(entry, weights));
    if (const auto w = weights.find(entry.quantizer); w != weights.end())
      add_shapes(out, *entry.quantizer, w->second->quantized_weight().shape());
    if (const auto found = clips.find(entry.quantizer->name()); found != clips.end())
      out.update({{"clipped", found->second.clipped}, {"count", found->second.count}});
  });
  for (const auto& [path, sums] : layers_with_sums(model)) layers.push_back(layer_json(path, sums));
  json out{{"format", "fakequant-scales"},
           {"version", 1},
           {"quantizers", std::move(quantizers)},
           {"layers", std::move(layers)}};
  // The id is a checksum of everything else, so it is computed before it is added.
  const std::string text = out.dump();
  out["id"] = fmt::format("{:08x}", crc32c(text.data(), text.size()));
  return out;
}

void save_scales_json(const std::string& path, Module& model, const ClipCounts& clips) {
  write_file(path, json_text(model, clips));
}

void save_scales_h5(const std::string& path, Module& model, const ClipCounts& clips) {
  save_state(path, scales_state(model, clips), "scales");
}

void save_scales(const std::string& prefix, Module& model, const ClipCounts& clips) {
  const detail::OnHost host(model);
  // Renames are not atomic together. After a crash between them, different ids show that the files do not
  // match.
  AtomicFile text(prefix + ".json"), state(prefix + ".h5");
  text.write(json_text(model, clips));
  save_state(state, scales_state(model, clips), "scales");
  commit_together({text, state});
}

namespace {

/// Counts the set bits of a mask. Bits after its last element do not count.
std::int64_t passed(const Tensor& bits) {
  const Tensor mask = bits.to(Device::cpu());
  const auto* bytes = static_cast<const std::uint8_t*>(mask.raw());
  const std::int64_t whole = mask.numel() / 8, rest = mask.numel() % 8;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < whole; ++i) count += std::popcount(bytes[i]);
  if (rest > 0) count += std::popcount(static_cast<std::uint8_t>(bytes[whole] & ((1 << rest) - 1)));
  return count;
}

}  // namespace

ClipCounter::ClipCounter(Module& model) {
  for (auto& [path, module] : model.named_modules())
    if (auto* quant = dynamic_cast<QuantModule*>(module);
        quant != nullptr && quant->weight_quantizer() != nullptr)
      for (const auto* part : quantizer_parts(*quant->weight_quantizer())) weights_.insert(part->name());
}

void ClipCounter::record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                            Attributes) {
  const QuantizedTensor* codes = op == "quantize" ? output.quantized() : nullptr;
  if (codes == nullptr || output.numel() == 0) return;
  const std::string& name = codes->grid.name;
  // The codes of a weight are the same in every batch. A compressed weight has no floats to compare.
  if (weights_.contains(name) && (counts_.contains(name) || holds_codes(inputs.at(0)))) return;
  // Evaluation computes no mask, because no gradient needs it. Quantizing the floats again gives the mask.
  const Tensor mask = quantize(inputs.at(0).tensor(), codes->grid).mask;
  ClipCount& sum = counts_[name];
  sum.clipped += mask.numel() - passed(mask);
  sum.count += mask.numel();
}

namespace {

// Whether all inputs of the quantizer have the same grid, as integer sums require.
bool gives_codes(const TensorQuantizer& q) {
  return q.enabled() && q.quantizing() && q.params().arithmetic == Arithmetic::deployed &&
         q.descriptor().needs_amax() && !q.descriptor().has_dynamic_blocks();
}

/// Returns codes without elements. Products only need their grid.
Variable input_codes(const QuantModule& layer) {
  const auto inputs = layer.input_quantizers();
  if (inputs.size() != 1) return {};
  // The product reads the codes of the last part of a sequence.
  const TensorQuantizer& q = *quantizer_parts(*inputs[0]).back();
  if (!inputs[0]->enabled() || !gives_codes(q)) return {};
  const Grid grid = q.grid();
  return Variable(QuantizedTensor{Tensor::empty({0}, grid.format.code_dtype()), grid, {}});
}

}  // namespace

std::optional<LayerSums> layer_sums(Module& layer) {
  const auto* quant = dynamic_cast<QuantModule*>(&layer);
  const auto product = detail::layer_product(layer);
  if (quant == nullptr || !product || quant->weight_quantizer() == nullptr) return {};
  const detail::OnHost host(layer);
  const NoGrad no_grad;
  const Variable x = input_codes(*quant);
  if (!x.defined()) return {};
  const Variable w = quant->weight_quantizer()->weight(quant->quantized_weight());
  const int axis = quant->weight_axis();
  if (detail::code_kind(x, w, axis) != detail::CodeKind::integers) return {};
  const QuantizedTensor &a = *x.quantized(), &b = *w.quantized();
  LayerSums out{detail::product_scale(a, b, axis, product->channels), {}};
  if (product->bias.defined())
    // The codes of the bias use the part of int32 that the largest sum leaves free.
    out.bias = bias_codes(product->bias.tensor(), out.scale,
                          detail::largest_sum(a, b, product->terms, "layer_sums"));
  return out;
}

}  // namespace fq
