#include "fakequant/export/scales.h"

#include <map>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
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

/// Not where each input has its own.
bool has_scales(const TensorQuantizer& q) {
  const QuantDescriptor& d = q.descriptor();
  return q.enabled() && (q.params().weight_scheme->has_scales_without_range() ||
                         (d.needs_amax() && !d.has_dynamic_blocks()));
}

Grid grid_of(const TensorQuantizer& q, const Weights& weights) {
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
    const Grid grid = grid_of(q, weights);
    out["amax"] = values_json(grid.amax);
    out["scale"] = values_json(grid.scale);
  } else if (q.enabled() && q.amax().defined()) {
    out["amax"] = values_json(q.amax());
  }
  return out;
}

Weights weights_of(Module& model) {
  Weights out;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* quant = dynamic_cast<QuantModule*>(module);
    if (quant == nullptr || quant->weight_quantizer() == nullptr) continue;
    for (const auto* part : quantizer_parts(*quant->weight_quantizer())) out[part] = quant;
  }
  return out;
}

void add_shapes(json& entry, const TensorQuantizer& q, const Shape& weight) {
  entry["shape"] = weight;
  if (!has_scales(q)) return;
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

Layers layers_of(Module& model) {
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
  const Weights weights = weights_of(model);
  state.set_attribute("scales", scales_json(model, clips));
  for_each_quantizer(model, [&](const NamedQuantizer& entry) {
    const TensorQuantizer& q = *entry.quantizer;
    if (!has_scales(q)) return;
    const Grid grid = grid_of(q, weights);
    state.set(below(entry.name, "amax"), grid.amax);
    state.set(below(entry.name, "scale"), grid.scale);
    state.set(below(entry.name, "zero_point"), Tensor::scalar(q.params().zero_point, DType::i32));
  });
  for (const auto& [name, sums] : layers_of(model)) {
    state.set(below(name, "sum_scale"), sums.scale);
    if (sums.bias.defined()) state.set(below(name, "bias_codes"), sums.bias);
  }
  return state;
}

}  // namespace

json scales_json(Module& model, const ClipCounts& clips) {
  const detail::OnHost host(model);
  json quantizers = json::array(), layers = json::array();
  const Weights weights = weights_of(model);
  for_each_quantizer(model, [&](const NamedQuantizer& entry) {
    json& out = quantizers.emplace_back(quantizer_json(entry, weights));
    if (const auto w = weights.find(entry.quantizer); w != weights.end())
      add_shapes(out, *entry.quantizer, w->second->quantized_weight().shape());
    if (const auto found = clips.find(entry.quantizer->name()); found != clips.end())
      out.update({{"clipped", found->second.clipped}, {"count", found->second.count}});
  });
  for (const auto& [path, sums] : layers_of(model)) layers.push_back(layer_json(path, sums));
  json out{{"format", "fakequant-scales"},
           {"version", 1},
           {"quantizers", std::move(quantizers)},
           {"layers", std::move(layers)}};
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
  AtomicFile text(prefix + ".json"), state(prefix + ".h5");
  text.write(json_text(model, clips));
  save_state(state, scales_state(model, clips), "scales");
  commit_together({text, state});
}

}  // namespace fq
