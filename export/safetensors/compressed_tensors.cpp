#include "fakequant/export/safetensors/compressed_tensors.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/quantized.h"
#include "fakequant/export/safetensors/detail/modelopt_layer.h"
#include "fakequant/layers/modules/detail/module_scopes.h"

namespace fq {
namespace {

using detail::ModeloptAlgorithm;
using detail::ModeloptLayer;
using nlohmann::json;

[[noreturn]] void no_name(const std::string& path, const std::string& what) {
  throw ArgumentError(
      fmt::format("[compressed_tensors] '{}' {}: the format supports linear layers of the presets int8 (with "
                  "--target none), int8_weight_only, int4_blockwise, fp8 and fp8_per_channel_per_token; "
                  "use --format safetensors for others",
                  path, what));
}

/// Throws if other quantizers than weight and layer input quantizers are on.
void check_others(Module& model) {
  for (const auto& [path, module] : model.named_modules()) {
    const auto* quant = dynamic_cast<const QuantModule*>(module);
    if (quant == nullptr) continue;
    if (const auto* output = quant->output_quantizer(); output != nullptr && output->enabled())
      no_name(path, "has a quantizer of its output");
    // `quantized_layers` has checked the inputs of layers with a weight.
    if (quant->weight_quantizer() != nullptr) continue;
    for (const auto& input : quant->input_quantizers())
      if (input->enabled()) no_name(path, "has quantizers and no weight");
  }
}

std::vector<ModeloptLayer> named_layers(Module& model) try {
  return detail::modelopt_layers(model);
} catch (const detail::NoModeloptName& error) {
  no_name(error.path, error.reason);
}

/// Returns the quantized layers of a model. Throws unless all are linear.
std::vector<ModeloptLayer> quantized_layers(Module& model) {
  std::vector<ModeloptLayer> out;
  for (const auto& layer : named_layers(model)) {
    if (layer.algorithm == ModeloptAlgorithm::none) continue;
    // `modelopt_layers` finds more formats than this writer stores.
    if (layer.algorithm == ModeloptAlgorithm::nvfp4 || layer.algorithm == ModeloptAlgorithm::mxfp8)
      no_name(layer.path, fmt::format("is {}", detail::name(layer.algorithm)));
    if (dynamic_cast<const Linear*>(&model.at(layer.path)) == nullptr)
      no_name(layer.path, "is no linear layer");
    if (layer.input().params().pre_quant_scale.defined()) no_name(layer.path, "has factors of its inputs");
    out.push_back(layer);
  }
  check_others(model);
  FQ_CHECK(!out.empty(), "compressed_tensors",
           "no weight is quantized: use save_safetensors for a float model");
  return out;
}

// Packs eight 4-bit codes into each I32. The last I32 of a row may be padded. codes: i8 [N, K] of -8..7,
// stored as 0..15.
Tensor packed(const Tensor& codes) {
  const std::int64_t rows = codes.dim(0), columns = codes.dim(1), words = (columns + 7) / 8;
  Tensor out = Tensor::zeros({rows, words}, DType::i32);
  auto* to = out.mutable_data<std::int32_t>();
  const auto* from = codes.data<std::int8_t>();
  for (std::int64_t i = 0; i < codes.numel(); ++i) {
    const auto code = static_cast<std::uint32_t>(from[i] + 8);
    auto& word = to[i / columns * words + i % columns / 8];
    word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | code << (4 * (i % columns % 8)));
  }
  return out;
}

// Returns [1], [N, 1] or [N, K / group]: compressed-tensors keeps the axes that share a scale.
Tensor scale_tensor(const QuantizedTensor& w) {
  const Tensor& scale = w.grid.scale;
  if (scale.numel() == 1) return scale.reshape({1});
  const Shape grid = w.grid.granularity.scale_shape(w.shape());
  return scale.reshape(grid);
}

void add_layer(const ModeloptLayer& layer, NamedTensors& out) {
  const NoGrad no_grad;
  const Variable codes = layer.quant->weight_quantizer()->weight(layer.quant->quantized_weight());
  const QuantizedTensor& w = *codes.quantized();
  const auto add = [&](const char* name, Tensor value) {
    out.emplace_back(detail::name_in_file(layer.path + "." + name), std::move(value));
  };
  if (layer.algorithm == ModeloptAlgorithm::w4a16_awq) {
    add("weight_packed", packed(w.codes));
    add("weight_shape", Tensor::from<std::int64_t>(w.shape(), {2}));
  } else {
    add("weight", w.codes);
  }
  add("weight_scale", scale_tensor(w));
  if (layer.input().enabled() && detail::has_input_scale(layer.input()))
    add("input_scale", layer.input().scale().reshape({1}));
}

// Fields of `QuantizationArgs` of the package compressed-tensors.
json scheme_of_weights(const ModeloptLayer& layer) {
  const bool floats = layer.algorithm == ModeloptAlgorithm::fp8 ||
                      layer.algorithm == ModeloptAlgorithm::fp8_per_channel_per_token;
  const bool one = layer.quant->weight_quantizer()->descriptor().axis().empty();
  json out{{"num_bits", layer.group > 0 ? 4 : 8},
           {"type", floats ? "float" : "int"},
           {"symmetric", true},
           {"dynamic", false},
           {"strategy", layer.group > 0 ? "group"
                        : one           ? "tensor"
                                        : "channel"}};
  if (layer.group > 0) out["group_size"] = layer.group;
  return out;
}

json scheme_of_input(const ModeloptLayer& layer) {
  if (!layer.input().enabled()) return nullptr;
  const bool dynamic = layer.algorithm == ModeloptAlgorithm::fp8_per_channel_per_token;
  return {{"num_bits", 8},
          {"type", layer.algorithm == ModeloptAlgorithm::w8a8_sq_per_channel ? "int" : "float"},
          {"symmetric", true},
          {"dynamic", dynamic},
          {"strategy", dynamic ? "token" : "tensor"}};
}

const char* format_name(const ModeloptLayer& layer) {
  switch (layer.algorithm) {
    case ModeloptAlgorithm::w4a16_awq:
      return "pack-quantized";
    case ModeloptAlgorithm::fp8:
    case ModeloptAlgorithm::fp8_per_channel_per_token:
      return "float-quantized";
    default:
      return "int-quantized";
  }
}

}  // namespace

NamedTensors compressed_tensors(Module& model) {
  const detail::OnHost host(model);
  NamedTensors out;
  std::set<std::string> owned;  // parameters of layers and quantizers
  for (const auto& layer : quantized_layers(model)) {
    add_layer(layer, out);
    owned.insert(layer.path + ".weight");
  }
  std::set<std::string> quantizers;
  for (const auto& [path, module] : model.named_modules())
    // A learned amax is a parameter of a quantizer. The written scales already contain it.
    if (dynamic_cast<TensorQuantizer*>(module) != nullptr) quantizers.insert(path);
  const auto add = [&](const std::string& name, const Tensor& value) {
    const auto dot = name.rfind('.');
    const std::string owner = dot == std::string::npos ? "" : name.substr(0, dot);
    if (!owned.contains(name) && !quantizers.contains(owner))
      out.emplace_back(detail::name_in_file(name), value);
  };
  for (const auto& [name, value] : model.named_parameters()) add(name, value.tensor());
  for (const auto& [name, value] : model.named_buffers()) add(name, value);
  return out;
}

json compressed_tensors_config(Module& model, const std::string& version) {
  // Layers with equal settings share a config group, so the config stays short for large networks.
  std::map<json, json> targets;  // names of layers by their shared settings
  std::set<std::string> formats;
  for (const auto& layer : quantized_layers(model)) {
    json scheme{{"weights", scheme_of_weights(layer)},
                {"input_activations", scheme_of_input(layer)},
                {"output_activations", nullptr},
                {"format", format_name(layer)}};
    targets[scheme].push_back(detail::name_in_file(layer.path));
    formats.insert(format_name(layer));
  }
  json groups = json::object(), ignored = json::array();
  for (auto& [scheme, names] : targets) {
    json group = scheme;
    group["targets"] = std::move(names);
    groups[fmt::format("group_{}", groups.size())] = std::move(group);
  }
  for (const auto& layer : detail::modelopt_layers(model))
    if (layer.algorithm == ModeloptAlgorithm::none) ignored.push_back(detail::name_in_file(layer.path));
  json producer{{"name", "fakequant"}};
  if (!version.empty()) producer["version"] = version;
  return {{"producer", std::move(producer)},
          {"quantization_config",
           {{"quant_method", "compressed-tensors"},
            {"quantization_status", "compressed"},
            {"format", formats.size() == 1 ? *formats.begin() : "mixed-precision"},
            {"config_groups", std::move(groups)},
            {"ignore", std::move(ignored)},
            {"kv_cache_scheme", nullptr}}}};
}

void save_compressed_tensors(const std::string& path, Module& model, const std::string& version) {
  const std::string config = compressed_tensors_config(model, version).dump(4) + "\n";
  AtomicFile config_file((std::filesystem::path(path).parent_path() / "config.json").string()), weights(path);
  config_file.write(config);
  // An unsupported layer throws before the commit, so existing files stay unchanged.
  save_safetensors(weights, compressed_tensors(model), {{"format", "pt"}});
  commit_together({config_file, weights});
}

}  // namespace fq
