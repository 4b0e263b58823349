#include "fakequant/export/safetensors/import_packed.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/export/quantized/detail/file_grids.h"
#include "fakequant/export/safetensors/detail/weight_source.h"

namespace fq {
namespace {

using nlohmann::ordered_json;

/// Settings for layer inputs from the config files in the folder of the weights.
class WeightConfigs {
 public:
  explicit WeightConfigs(const std::string& path)
      : modelopt_(read(path, "hf_quant_config.json")), config_(read(path, "config.json")) {}

  /// Whether inputs are E4M3 or integers with dynamic ranges.
  [[nodiscard]] bool has_dynamic_inputs() const {
    if (const auto at = ordered_json::json_pointer("/quantization/quant_algo"); modelopt_.contains(at))
      return modelopt_.at(at) == "FP8_PER_CHANNEL_PER_TOKEN";
    const auto groups = ordered_json::json_pointer("/quantization_config/config_groups");
    if (!config_.is_object() || !config_.contains(groups) || !config_.at(groups).is_object()) return false;
    return std::ranges::any_of(config_.at(groups), [](const ordered_json& group) {
      const auto dynamic = ordered_json::json_pointer("/input_activations/dynamic");
      return group.is_object() && group.contains(dynamic) && group.at(dynamic) == true;
    });
  }

  /// Returns ModelOpt's name of a layer's algorithm, "MXFP8". Empty if the configs do not name it.
  [[nodiscard]] std::string layer_algorithm(const std::string& layer) const {
    const auto text = [&](const ordered_json::json_pointer& at) {
      return modelopt_.contains(at) && modelopt_.at(at).is_string() ? modelopt_.at(at).get<std::string>()
                                                                    : "";
    };
    const std::string all = text(ordered_json::json_pointer("/quantization/quant_algo"));
    if (all != "MIXED_PRECISION") return all;
    return text(ordered_json::json_pointer("/quantization/quantized_layers") / layer / "quant_algo");
  }

 private:
  static ordered_json read(const std::string& path, const char* name) {
    const std::string file = (std::filesystem::path(path).parent_path() / name).string();
    std::error_code none;
    return std::filesystem::exists(file, none) ? detail::JsonText::load(file, "import")->value()
                                               : ordered_json();
  }

  ordered_json modelopt_, config_;
};

/// Sets blocks along the last axis with 8-bit scales, which are computed from the values.
void set_blocks(ordered_json& rule, const detail::PackedLayer& layer) {
  rule.erase("axis");
  rule["block_sizes"] = {{"-1", layer.group}};
  if (!layer.scale_bits) return;
  rule["block_sizes"]["type"] = "dynamic";
  rule["block_sizes"]["scale_bits"] =
      *layer.scale_bits == NumBits(4, 3) ? std::vector{4, 3} : std::vector{8, 0};
}

/// Rows of a weight of the file that are the weight of a layer.
struct PackedRows {
  std::string path;  ///< of the layer
  std::int64_t begin = 0, end = 0;
};

class Quantizing {
 public:
  Quantizing(const std::string& path, const StateDict& floats)
      : path_(path), floats_(floats), source_(path), file_(source_.packed()), configs_(path) {}

  FileQuantization run() {
    if (file_.layers.empty()) return {};
    for (const auto& layer : file_.layers) add(layer);
    for (const auto& [name, scale] : file_.scales) add_scale(name, scale);
    const ordered_json config{{"target", file_.scales.empty() ? "ort" : "tensorrt"}, {"rules", rules_}};
    return {config.dump(), std::move(grids_)};
  }

 private:
  [[noreturn]] void fail(const std::string& tensor, const std::string& why) const {
    throw FileError(path_, tensor, fmt::format("[import] {}: {}: {}", path_, tensor, why));
  }

  /// Returns the paths of a layer: the parameter with its values, or with its name if several have these
  /// values.
  [[nodiscard]] std::vector<std::string> layer_paths(const detail::PackedLayer& layer) const {
    // The network may have other names than the file, so the weight values identify the layer.
    std::vector<std::string> out;
    for (const auto& [name, value] : floats_.tensors()) {
      if (!name.starts_with("parameters/") || !name.ends_with(".weight")) continue;
      if (value.numel() == layer.values.numel() &&
          bitwise_equal(value.reshape(layer.values.shape()), layer.values))
        out.push_back(name.substr(11, name.size() - 11 - 7));
    }
    if (const auto own = std::ranges::find(out, layer.name); own != out.end()) return {layer.name};
    return out;
  }

  /// Returns the weights of queries, keys and values whose rows are the rows of a layer (c_attn of GPT-2).
  /// Empty for other layers.
  [[nodiscard]] std::vector<PackedRows> stacked_paths(const detail::PackedLayer& layer) const {
    constexpr std::string_view first = ".q_proj";
    for (const auto& [name, value] : floats_.tensors()) {
      const std::string path = name.starts_with("parameters/") ? name.substr(11) : "";
      if (!path.ends_with(std::string(first) + ".weight")) continue;
      const std::string parent = path.substr(0, path.size() - first.size() - 7);
      std::vector<PackedRows> out;
      std::int64_t row = 0;
      for (const auto* part : {".q_proj", ".k_proj", ".v_proj"}) {
        const std::string own = parent + part;
        if (!floats_.contains("parameters/" + own + ".weight")) break;
        const Tensor& rows = floats_.at("parameters/" + own + ".weight");
        if (rows.rank() != 2) break;
        const std::int64_t end = row + rows.dim(0);
        if (end > layer.values.dim(0) || rows.dim(1) != layer.values.dim(1) ||
            !bitwise_equal(rows, layer.values.slice(row, end).clone()))
          break;
        out.push_back({own, row, end});
        row = end;
      }
      if (out.size() == 3 && row == layer.values.dim(0)) return out;
    }
    return {};
  }

  void add(const detail::PackedLayer& layer) {
    std::vector<PackedRows> parts;
    if (const auto paths = layer_paths(layer); !paths.empty())
      parts = {{paths.front(), 0, layer.codes.dim(0)}};
    else if (layer.codes.rank() == 2)
      parts = stacked_paths(layer);
    if (parts.empty()) fail(layer.name, "its codes belong to no layer of the network");
    for (const auto& part : parts) {
      places_[layer.name].push_back(part.path);
      add_weight(layer, part);
    }
    if (!file_.scales.contains(layer.name + ".input_scale"))
      for (const auto& part : parts) add_dynamic_input(layer, part.path);
  }

  void add_weight(const detail::PackedLayer& layer, const PackedRows& part) {
    const std::string quantizer = part.path + ".weight_quantizer";
    ordered_json rule = detail::grid_rule(quantizer, detail::narrowed(layer.format, layer.codes));
    const Shape shape = floats_.at("parameters/" + part.path + ".weight").shape();
    if (layer.group > 0)
      set_blocks(rule, layer);
    else if (layer.scale.rank() > 0)
      rule["axis"] = 0;
    rules_.push_back(std::move(rule));
    const Tensor scale =
        layer.scale.rank() > 0 ? layer.scale.slice(part.begin, part.end).clone().reshape({-1}) : layer.scale;
    grids_.push_back({quantizer, fmt::format("tensor '{}.weight'", layer.name), scale,
                      layer.codes.slice(part.begin, part.end).clone().reshape(shape), layer.unit});
  }

  /// Adds an input with dynamic ranges.
  void add_dynamic_input(const detail::PackedLayer& layer, const std::string& path) {
    const std::string quantizer = path + ".input_quantizer";
    if (layer.scale_bits) {
      if (configs_.layer_algorithm(layer.name) != "MXFP8") return;
      rules_.push_back(detail::grid_rule(quantizer, layer.format));
      return set_blocks(rules_.back(), layer);
    }
    if (!configs_.has_dynamic_inputs()) return;
    if (layer.format.is_integer())
      fail(layer.name, "its input has integers with a dynamic range: use a static range");
    rules_.push_back({{"pattern", quantizer},
                      {"num_bits", {4, 3}},
                      {"block_sizes", {{"-1", nullptr}}},
                      {"dynamic", true},
                      {"enable", true}});
  }

  /// Adds the scale of an input or an output: "conv1.input_scale", "add1.input_scale_1".
  void add_scale(const std::string& name, const Tensor& scale) {
    const auto dot = name.rfind('.');
    const std::string layer = dot == std::string::npos ? "" : name.substr(0, dot),
                      last = name.substr(dot + 1);
    if (scale.numel() != 1) fail(name, "an input has one scale here");
    // The text after "input_scale" is empty, or "_1" for the second input.
    const std::string role =
        last == "output_scale" ? "output_quantizer" : "input_quantizer" + last.substr(11);
    const auto place = places_.find(layer);
    for (const auto& path : place == places_.end() ? std::vector{layer} : place->second)
      add_range(name, scale, layer, path + (path.empty() ? "" : ".") + role);
  }

  /// Gives a quantizer the scale `name` of a layer of the file.
  void add_range(const std::string& name, const Tensor& scale, const std::string& layer,
                 const std::string& quantizer) {
    const std::string origin = fmt::format("tensor '{}'", name);
    const auto own = std::ranges::find(file_.layers, layer, &detail::PackedLayer::name);
    // The input of NVFP4 has dynamic blocks. The file has only the factor of their scales.
    if (own != file_.layers.end() && own->unit > 0 && quantizer.ends_with(".input_quantizer")) {
      rules_.push_back(detail::grid_rule(quantizer, own->format));
      set_blocks(rules_.back(), *own);
      grids_.push_back({quantizer, origin, {}, {}, static_cast<float>(scale.item())});
      return;
    }
    // The file does not state the format of these codes. It is the format of the layer's weight, or of any
    // weight for a module without one.
    const bool floats = std::ranges::any_of(file_.layers, [&](const auto& each) {
      return !each.format.is_integer() && (each.name == layer || !places_.contains(layer));
    });
    rules_.push_back(detail::grid_rule(quantizer, floats ? Format(FloatFormat{4, 3}) : Format(IntFormat{8})));
    grids_.push_back({quantizer, origin, scale, {}});
  }

  const std::string& path_;
  const StateDict& floats_;
  detail::WeightSource source_;
  const detail::PackedFile& file_;
  WeightConfigs configs_;
  std::map<std::string, std::vector<std::string>> places_;  // layers of the file -> paths
  ordered_json rules_ = ordered_json::array({detail::all_off()});
  std::vector<FileGrid> grids_;
};

}  // namespace

FileQuantization packed_quantization(const std::string& path, const StateDict& floats) {
  return Quantizing(path, floats).run();
}

}  // namespace fq
