#include "fakequant/train/checkpoint.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "fakequant/core/check.h"
#include "fakequant/core/io/state_file.h"
#include "fakequant/layers/quantize.h"

namespace fq {
namespace {

using Tensors = std::vector<std::pair<std::string, Tensor>>;

Tensors tensors_of(const Module& model) {
  Tensors out;
  for (const auto& [name, value] : model.named_parameters())
    out.emplace_back("parameters/" + name, value.tensor());
  for (const auto& [name, value] : model.named_buffers()) out.emplace_back("buffers/" + name, value);
  return out;
}

[[noreturn]] void another_model(const std::string& path, const std::string& name, const std::string& what) {
  throw FileError(
      path, name,
      fmt::format("[load_checkpoint] {} is a checkpoint of another model: {} {}", path, name, what));
}

std::string shape_of(const Tensor& t) { return fmt::format("{} {}", name(t.dtype()), to_string(t.shape())); }

void check_tensors(const Tensors& wanted, const StateDict& state, const std::string& path) {
  std::set<std::string_view> known;
  for (const auto& [name, tensor] : wanted) {
    known.insert(name);
    if (!state.contains(name)) another_model(path, name, "is not in it");
    const Tensor& saved = state.at(name);
    if (saved.shape() != tensor.shape() || saved.dtype() != tensor.dtype())
      another_model(path, name, fmt::format("is {} there, {} here", shape_of(saved), shape_of(tensor)));
  }
  for (const auto& name : state.names())
    if ((name.starts_with("parameters/") || name.starts_with("buffers/")) && !known.contains(name))
      another_model(path, name, "is not in this model");
}

void check_quantizers(Module& model, const StateDict& state, const std::string& path) {
  std::set<std::string> known;
  for (const auto& entry : named_quantizers(model)) {
    known.insert(entry.name);
    if (!state.has_sub("quantizers/" + entry.name))
      another_model(path, "quantizers/" + entry.name, "is not in it");
  }
  const auto saved = state.sub("quantizers").attributes();
  for (const auto& [key, value] : saved.items()) {
    const std::string name = key.substr(0, key.find('/'));
    if (!known.contains(name)) another_model(path, "quantizers/" + name, "is not in this model");
  }
}

}  // namespace

StateDict model_state(Module& model, const nlohmann::json& description) {
  StateDict out;
  if (!description.is_null()) out.set_attribute("model", description);
  for (auto& [name, tensor] : tensors_of(model)) out.set(name, tensor);
  save_quantizers(model, out);
  return out;
}

void load_model_state(Module& model, const StateDict& state, const std::string& path) {
  check_quantizers(model, state, path);
  try {
    load_quantizers(model, state);  // first: it makes the parameters of learned ranges
  } catch (const ArgumentError& error) {
    throw FileError(path, "quantizers", fmt::format("{} (in {})", error.what(), path));
  }
  const Tensors wanted = tensors_of(model);
  check_tensors(wanted, state, path);
  for (const auto& [name, tensor] : wanted) Tensor(tensor).copy_from(state.at(name));
}

void save_checkpoint(const std::string& path, const StateDict& state) {
  save_state(path, state, "checkpoint");
}

StateDict load_checkpoint(const std::string& path) { return load_state(path, "checkpoint"); }

bool has_training_state(const StateDict& state) { return state.has_sub("progress"); }

std::string best_checkpoint_path(const std::string& path) {
  std::filesystem::path best(path);
  best.replace_extension(".best.h5");
  return best.string();
}

}  // namespace fq
