#include "fakequant/train/loop/checkpoint.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/modules/quant_recurrent.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/loop/detail/saved_values.h"

namespace fq {
namespace {

using Tensors = std::vector<std::pair<std::string, Tensor>>;

Tensors model_tensors(const Module& model) {
  Tensors out;
  for (const auto& [name, value] : detail::saved_parameters(model))
    out.emplace_back("parameters/" + name, value.tensor());
  for (const auto& [name, value] : model.named_buffers()) out.emplace_back("buffers/" + name, value);
  return out;
}

[[noreturn]] void another_model(const std::string& path, const std::string& name, const std::string& what) {
  throw FileError(
      path, name,
      fmt::format("[load_checkpoint] {} is a checkpoint of another model: {} {}", path, name, what));
}

std::string described(const Shape& shape, DType dtype) {
  return fmt::format("{} {}", name(dtype), to_string(shape));
}

/// Layers by the name of their weight. A weight may be floats in the model and codes in the file, or the
/// reverse.
using WeightLayers = std::map<std::string, const QuantModule*>;

WeightLayers weight_layers(Module& model) {
  // By tape node: a tied weight has one node and several names.
  std::map<const void*, const QuantModule*> layers;
  for (const auto& [path, module] : model.named_modules())
    if (const auto* layer = dynamic_cast<const QuantModule*>(module);
        layer != nullptr && layer->weight_quantizer() != nullptr && layer->quantized_weight().defined())
      layers.emplace(layer->quantized_weight().node().get(), layer);
  WeightLayers out;
  for (const auto& [name, value] : model.named_parameters())
    if (const auto found = layers.find(value.node().get()); found != layers.end())
      out.emplace("parameters/" + name, found->second);
  return out;
}

void check_codes(const QuantModule& layer, const Tensor& codes, const std::string& path,
                 const std::string& name) {
  try {
    check_weight(layer, codes);
  } catch (const ArgumentError& error) {
    throw FileError(path, name, fmt::format("{} (in {}, {})", error.what(), path, name));
  }
}

void check_tensors(const Module& model, const Tensors& wanted, const WeightLayers& layers,
                   const StateDict& state, const std::string& path) {
  std::set<std::string> known;
  for (const auto& [name, value] : model.named_parameters()) known.insert("parameters/" + name);
  for (const auto& [name, tensor] : wanted) {
    known.insert(name);
    if (!state.contains(name)) another_model(path, name, "is not in it");
    const Tensor& saved = state.at(name);
    const bool weight = layers.contains(name);
    // A compressed checkpoint has codes, which only the layer's quantizer can check.
    if (weight && !is_floating(saved.dtype())) {
      check_codes(*layers.at(name), saved, path, name);
      continue;
    }
    // The model's weight may be codes now; floats in the file are always f32.
    const DType dtype = weight ? DType::f32 : tensor.dtype();
    if (saved.shape() != tensor.shape() || saved.dtype() != dtype)
      another_model(path, name,
                    fmt::format("is {} there, {} here", described(saved.shape(), saved.dtype()),
                                described(tensor.shape(), dtype)));
  }
  // Values that the model lacks belong to another model: they must not be ignored.
  for (const auto& name : state.names())
    if ((name.starts_with("parameters/") || name.starts_with("buffers/")) && !known.contains(name))
      another_model(path, name, "is not in this model");
}

void check_finite(const StateDict& state, const std::string& path) {
  Tensors values;
  for (const auto& entry : state.tensors())
    if (entry.first.starts_with("parameters/") || entry.first.starts_with("buffers/"))
      values.push_back(entry);
  if (const auto found = detail::find_not_finite(values))
    throw FileError(
        path, found->name,
        fmt::format("[load_checkpoint] {}: {}: the run diverged: use an earlier file, or train again "
                    "with a smaller learning rate",
                    path, found->text()));
}

void check_quantizers(Module& model, const StateDict& state, const std::string& path) {
  std::set<std::string> known;
  for (const auto& entry : named_quantizers(model)) {
    known.insert(entry.name);
    if (!state.has_sub("quantizers/" + entry.name))
      another_model(path, "quantizers/" + entry.name, "is not in it");
  }
  // Keys are "<quantizer>/<attribute>".
  const auto saved = state.sub("quantizers").attributes();
  for (const auto& [key, value] : saved.items()) {
    const std::string name = key.substr(0, key.find('/'));
    if (!known.contains(name)) another_model(path, "quantizers/" + name, "is not in this model");
  }
}

/// Replaces recurrent layers by float layers if the file has no quantizers for them. Older versions could not
/// quantize recurrent layers.
void keep_floats(Module& model, const StateDict& state) {
  const auto has = [&](const std::string& path, const char* weight) {
    return state.has_sub("quantizers/" + path + weight + ".weight_quantizer");
  };
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> found;
  for (const auto& [path, module] : model.named_modules())
    if (const auto* layer = dynamic_cast<const QuantRecurrent*>(module);
        layer != nullptr && !has(path, ".weight_ih") && !has(path, ".weight_ih_l0"))
      found.emplace_back(path, layer->float_layer());
  for (const auto& [path, layer] : found) model.replace(path, layer);
}

}  // namespace

StateDict model_state(Module& model) {
  StateDict out;
  for (auto& [name, tensor] : model_tensors(model)) out.set(name, tensor);
  save_quantizers(model, out);
  return out;
}

StateDict model_state(Module& model, const nlohmann::json& description) {
  StateDict out = model_state(model);
  if (!description.is_null()) out.set_attribute("model", description);
  return out;
}

void load_model_state(Module& model, const StateDict& state, const std::string& path) {
  // First, because it changes the set of quantizers that the checks expect.
  keep_floats(model, state);
  check_quantizers(model, state, path);
  check_finite(state, path);
  try {
    load_quantizers(model, state);  // first, because it creates the parameters of learned ranges
  } catch (const ArgumentError& error) {
    throw FileError(path, "quantizers", fmt::format("{} (in {})", error.what(), path));
  }
  const Tensors wanted = model_tensors(model);
  const WeightLayers layers = weight_layers(model);
  check_tensors(model, wanted, layers, state, path);
  for (const auto& [name, tensor] : wanted) {
    const Tensor& saved = state.at(name);
    if (saved.dtype() == tensor.dtype())
      // A copy of the handle: copy_from writes the shared storage in place.
      Tensor(tensor).copy_from(saved);
    else
      set_weight(*layers.at(name), saved);
  }
}

void save_checkpoint(const std::string& path, const StateDict& state) {
  if (const auto found = detail::find_not_finite(state.tensors()))
    throw NumericError(fmt::format("[save_checkpoint] {}: nothing was written to {}", found->text(), path));
  save_state(path, state, "checkpoint");
}

StateDict load_checkpoint(const std::string& path) { return load_state(path, "checkpoint"); }

bool has_training_state(const StateDict& state) { return state.has_sub("progress"); }

std::string sibling_path(const std::string& path, const std::string& extension) {
  std::filesystem::path sibling(path);
  if (sibling.extension() == ".h5") sibling.replace_extension();
  return sibling.string() + extension;
}

std::string best_checkpoint_path(const std::string& path) {
  const std::filesystem::path last(path);
  // The layout of a run folder: checkpoints/last.h5 and checkpoints/best.h5.
  if (last.filename() == "last.h5" && last.parent_path().filename() == "checkpoints")
    return (last.parent_path() / "best.h5").string();
  return sibling_path(path, ".best.h5");
}

bool allows_sibling_files(const std::string& path) {
  // A path that does not exist yet will be a regular file.
  std::error_code none;
  const auto status = std::filesystem::status(path, none);
  return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
}

}  // namespace fq
