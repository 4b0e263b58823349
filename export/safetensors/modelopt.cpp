#include "fakequant/export/safetensors/modelopt.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/packed_scales.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/quantized.h"
#include "fakequant/export/safetensors/detail/modelopt_layer.h"
#include "fakequant/export/scales.h"
#include "fakequant/layers/modules/detail/module_scopes.h"

namespace fq {
namespace {

using detail::ModeloptAlgorithm;
using detail::ModeloptLayer;
using nlohmann::json;

std::string below(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

// Returns the storage of packed or 8-bit float codes as u8.
Tensor as_bytes(const Tensor& codes, Shape shape) {
  const auto* bytes = static_cast<const std::uint8_t*>(codes.raw());
  return Tensor::from(std::span(bytes, static_cast<std::size_t>(codes.nbytes())), std::move(shape));
}

/// Packs rows 2i and 2i + 1 of [N, K] into the low and high nibbles of [N/2, K].
Tensor pairs_of_rows(const Tensor& codes) {
  const std::int64_t rows = codes.dim(0), columns = codes.dim(1);
  Tensor nibbles = Tensor::empty({rows / 2, columns, 2}, DType::i8);
  auto* to = nibbles.mutable_data<std::int8_t>();
  const auto* from = codes.data<std::int8_t>();
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) to[(r / 2 * columns + c) * 2 + r % 2] = from[r * columns + c];
  return as_bytes(pack_codes(nibbles, DType::i4), {rows / 2, columns});
}

Tensor packed_weight(const ModeloptLayer& layer, const QuantizedTensor& w) {
  if (layer.algorithm == ModeloptAlgorithm::w4a16_awq) return pairs_of_rows(w.codes);
  if (layer.algorithm != ModeloptAlgorithm::nvfp4) return w.codes;
  return as_bytes(w.codes, {w.codes.dim(0), w.codes.dim(1) / 2});
}

/// Returns scales [N] for formats with one scale per row. A single range is repeated.
Tensor row_scales(const QuantizedTensor& w) {
  const Tensor& scale = w.grid.scale;
  if (scale.numel() == 1) return Tensor::full({w.codes.dim(0)}, scale.item());
  const bool rows = w.grid.granularity.single_axis(w.codes.rank()) == 0;
  return scale.reshape(rows ? Shape{scale.numel()} : w.grid.granularity.scale_shape(w.shape()));
}

Tensor weight_scale(const ModeloptLayer& layer, const QuantizedTensor& w) {
  const Shape grid = w.grid.granularity.scale_shape(w.shape());
  switch (layer.algorithm) {
    case ModeloptAlgorithm::fp8:
      return w.grid.scale.reshape({});
    case ModeloptAlgorithm::nvfp4:
      return scale_codes(w.grid.scale.reshape(grid), w.grid);
    case ModeloptAlgorithm::mxfp8:
      return as_bytes(scale_codes(w.grid.scale, w.grid), grid);
    case ModeloptAlgorithm::w4a16_awq:
      return w.grid.scale.reshape(grid);
    default:
      return row_scales(w);
  }
}

// Returns amax / 2688, the factor of the block scales: 448 is the largest E4M3 scale and 6 the largest E2M1
// code.
Tensor scale_of_scales(const TensorQuantizer& q) {
  const double amax = q.amax().item() * static_cast<float>(q.descriptor().scale_amax().value_or(1));
  const auto grid = Grid::block_scaled(q.descriptor().format(), Granularity::per_tensor(),
                                       Tensor::scalar(amax), {4, 3}, static_cast<float>(amax));
  return Tensor::scalar(static_cast<double>(grid.unit));
}

class Collecting {
 public:
  explicit Collecting(Module& model) : model_(model), layers_(detail::modelopt_layers(model)) {}

  NamedTensors run() {
    // Layers come first: their weights are codes and are then skipped among the float parameters.
    for (const auto& layer : layers_)
      if (layer.algorithm != ModeloptAlgorithm::none) add_layer(layer);
    for (const auto& [path, module] : model_.named_modules()) {
      if (dynamic_cast<TensorQuantizer*>(module) != nullptr) skipped_.insert(path);
      if (auto* quant = dynamic_cast<QuantModule*>(module); quant != nullptr) add_outer_scales(path, *quant);
    }
    for (const auto& [name, value] : model_.named_parameters()) add_float(name, value.tensor());
    for (const auto& [name, value] : model_.named_buffers()) add_float(name, value);
    return std::move(tensors_);
  }

 private:
  void add(const std::string& path, const std::string& name, const Tensor& value) {
    tensors_.emplace_back(detail::name_in_file(below(path, name)), value);
  }

  void add_layer(const ModeloptLayer& layer) {
    const NoGrad no_grad;
    // The quantizer returns the codes that forward multiplies, with the rounding of its target.
    const Variable weight = layer.quant->weight_quantizer()->weight(layer.quant->quantized_weight());
    const QuantizedTensor& w = *weight.quantized();
    weights_.insert(below(layer.path, "weight"));
    add(layer.path, "weight", packed_weight(layer, w));
    add(layer.path, "weight_scale", weight_scale(layer, w));
    if (layer.algorithm == ModeloptAlgorithm::nvfp4) {
      add(layer.path, "weight_scale_2", Tensor::scalar(static_cast<double>(w.grid.unit)));
      add(layer.path, "input_scale", scale_of_scales(layer.input()));
    } else if (layer.input().enabled() && detail::has_input_scale(layer.input())) {
      add(layer.path, "input_scale", layer.input().scale().reshape({}));
    }
    if (layer.input().params().pre_quant_scale.defined())
      add(layer.path, "pre_quant_scale", layer.input().params().pre_quant_scale);
    // ModelOpt has no integer biases. Other readers ignore the key.
    const auto sums = layer_sums(model_.at(layer.path));
    if (sums && sums->bias.defined()) add(layer.path, "bias_code", sums->bias);
  }

  void add_outer_scales(const std::string& path, QuantModule& quant) {
    if (const auto* q = quant.output_quantizer(); q != nullptr && q->enabled())
      add_one_scale(path, "output_scale", *q);
    // Modules without a weight (additions) may have a quantizer for each input.
    if (quant.weight_quantizer() != nullptr) return;
    const auto inputs = quant.input_quantizers();
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i]->enabled())
        add_one_scale(path, i == 0 ? "input_scale" : "input_scale_" + std::to_string(i), *inputs[i]);
  }

  void add_one_scale(const std::string& path, const std::string& name, const TensorQuantizer& q) {
    if (!detail::has_input_scale(q)) detail::no_modelopt_name(path, "has a quantizer of " + q.describe());
    add(path, name, q.scale().reshape({}));
  }

  /// Adds a float parameter. Trained ranges belong to quantizers and are skipped.
  void add_float(const std::string& name, const Tensor& value) {
    const auto dot = name.rfind('.');
    const std::string owner = dot == std::string::npos ? "" : name.substr(0, dot);
    if (!weights_.contains(name) && !skipped_.contains(owner))
      tensors_.emplace_back(detail::name_in_file(name), value);
  }

  Module& model_;
  std::vector<ModeloptLayer> layers_;
  NamedTensors tensors_;
  std::set<std::string> weights_, skipped_;
};

json layer_config(const ModeloptLayer& layer) {
  json out{{"quant_algo", detail::name(layer.algorithm)}};
  if (layer.group > 0) out["group_size"] = layer.group;
  if (layer.algorithm == ModeloptAlgorithm::w4a16_awq) {
    out["has_zero_point"] = false;
    out["pre_quant_scale"] = layer.input().params().pre_quant_scale.defined();
  }
  return out;
}

}  // namespace

NamedTensors modelopt_tensors(Module& model) {
  const detail::OnHost host(model);
  return Collecting(model).run();
}

json modelopt_config(Module& model, const std::string& version) {
  json layers = json::object(), excluded = json::array();
  std::set<json> forms;
  for (const auto& layer : detail::modelopt_layers(model)) {
    if (layer.algorithm == ModeloptAlgorithm::none) {
      excluded.push_back(detail::name_in_file(layer.path));
      continue;
    }
    const json own = layer_config(layer);
    layers[detail::name_in_file(layer.path)] = own;
    forms.insert(own);
  }
  FQ_CHECK(!forms.empty(), "modelopt", "no weight is quantized: use save_safetensors for a float model");
  // Equal layers share one algorithm at the top. Otherwise each layer is listed.
  json quantization = forms.size() == 1 ? *forms.begin() : json{{"quant_algo", "MIXED_PRECISION"}};
  quantization["kv_cache_quant_algo"] = nullptr;
  quantization["exclude_modules"] = std::move(excluded);
  if (forms.size() > 1) quantization["quantized_layers"] = std::move(layers);
  json producer{{"name", "fakequant"}};
  if (!version.empty()) producer["version"] = version;
  return {{"producer", std::move(producer)},
          {"quantization", std::move(quantization)},
          {"weights_crc32c", fmt::format("{:08x}", safetensors_checksum(modelopt_tensors(model)))}};
}

void save_modelopt(const std::string& path, Module& model, const std::string& version) {
  const std::string config = modelopt_config(model, version).dump(4) + "\n";
  AtomicFile config_file((std::filesystem::path(path).parent_path() / "hf_quant_config.json").string()),
      weights(path);
  config_file.write(config);
  save_safetensors(weights, modelopt_tensors(model), {{"format", "pt"}});
  commit_together({config_file, weights});
}

}  // namespace fq
