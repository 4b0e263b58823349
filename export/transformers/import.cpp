#include "fakequant/export/transformers/import.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/export/safetensors/detail/weight_names.h"
#include "fakequant/export/safetensors/detail/weight_source.h"
#include "fakequant/export/safetensors/weights.h"
#include "fakequant/export/transformers/detail/plan.h"
#include "fakequant/train/loop/detail/finite.h"

namespace fq::detail {
namespace {

using Names = std::vector<std::string>;

constexpr std::size_t kMostListed = 20;

/// Reads the tensors of a file into the parameters of a plan.
class PlannedWeights {
 public:
  PlannedWeights(const TransformerPlan& plan, const std::string& path,
                 const std::vector<WeightRename>& renames)
      : plan_(plan), path_(path), source_(path) {
    for (const auto& layer : source_.packed().layers) packed_.insert(layer.name + ".weight");
    for (const auto& entry : source_.entries()) {
      // The first pattern that matches is applied. An empty result excludes the tensor from the import.
      std::string name = entry.name;
      const auto rename = std::ranges::find_if(
          renames, [&](const auto& each) { return rename_weight(each, entry.name, name); });
      if (rename == renames.end()) name = entry.name;
      if (!name.empty()) entries_.emplace(name, &entry);
    }
  }

  StateDict run() {
    // All tensors are matched by their headers before any data is read, so that one error lists all
    // mismatches. `found` has no null pointer after `fail_unless_all_fit`.
    std::vector<const SafetensorsEntry*> found;
    for (const auto& place : plan_.places) found.push_back(checked(place));
    for (const auto& [name, entry] : entries_)
      if (!used_.contains(entry->name) && !is_ignored(name)) left_.push_back(name);
    fail_unless_all_fit();
    StateDict state;
    for (std::size_t i = 0; i < found.size(); ++i)
      state.set("parameters/" + plan_.places[i].parameter, value(plan_.places[i], found[i]->name));
    return state;
  }

 private:
  /// Finds a tensor by its name. Files of networks without a head have names without `prefix`.
  [[nodiscard]] const SafetensorsEntry* entry(const std::string& name) const {
    auto at = entries_.find(name);
    if (at == entries_.end() && !plan_.prefix.empty() && name.starts_with(plan_.prefix))
      at = entries_.find(name.substr(plan_.prefix.size()));
    return at == entries_.end() ? nullptr : at->second;
  }

  /// Whether the file has [in, out]. ModelOpt writes a quantized Conv1D as a linear layer.
  [[nodiscard]] bool is_transposed(const WeightPlace& place, const std::string& name) const {
    return place.transposed && !packed_.contains(name);
  }
  /// Returns the shape of the tensor `name` in the file.
  [[nodiscard]] Shape shape_there(const WeightPlace& place, const std::string& name) const {
    Shape shape = place.shape;
    if (place.outputs > 0) shape[0] = place.outputs;
    if (is_transposed(place, name)) std::ranges::reverse(shape);
    return shape;
  }

  const SafetensorsEntry* checked(const WeightPlace& place) {
    const SafetensorsEntry* found = nullptr;
    // Names are in order of preference: older files have other names for the same parameter (gamma for
    // weight).
    for (const auto& name : place.names)
      if (found = entry(name); found != nullptr) break;
    if (found == nullptr) {
      missing_.push_back(place.names.front());
      return nullptr;
    }
    used_.insert(found->name);
    if (!is_float(found->dtype))
      misshaped_.push_back(fmt::format("{} is {}: use F32, F16, BF16 or F64", found->name, found->dtype));
    else if (found->shape != shape_there(place, found->name))
      misshaped_.push_back(fmt::format("{} is {}, config.json makes it {}", found->name,
                                       to_string(found->shape), to_string(shape_there(place, found->name))));
    return found;
  }

  static bool is_float(const std::string& dtype) {
    return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F64";
  }
  [[nodiscard]] bool is_ignored(const std::string& name) const {
    return std::ranges::any_of(plan_.passed_over, [&](const auto& pattern) {
      return wildcard_match(pattern, name) || wildcard_match(pattern, plan_.prefix + name);
    });
  }

  void fail_unless_all_fit() const {
    Names parts;
    const auto part = [&](const char* what, Names names) {
      if (names.empty()) return;
      const std::size_t count = names.size();
      names.resize(std::min(count, kMostListed));
      parts.push_back(
          fmt::format("{} {}: {}{}", count, what, fmt::join(names, ", "), count > kMostListed ? ", .." : ""));
    };
    part("missing", missing_);
    part("of other shapes or types", misshaped_);
    part("without a parameter, which --map can exclude", left_);
    if (!parts.empty())
      throw FileError(path_, {},
                      fmt::format("[import] the tensors of {} do not match "
                                  "config.json: {}",
                                  path_, fmt::join(parts, "; ")));
  }

  [[nodiscard]] Tensor value(const WeightPlace& place, const std::string& name) const {
    Tensor x = source_.read(name).to(DType::f32);
    if (is_transposed(place, name)) x = ops::transpose(Variable(x), {1, 0}).tensor();
    // Rows are outputs only after the transposition, so the part of a stacked tensor (c_attn of GPT-2) is cut
    // last.
    if (place.outputs > 0) x = x.slice(place.first, place.first + place.shape[0]).clone();
    if (const auto bad = find_not_finite({{place.parameter, x}}))
      throw FileError(
          path_, name,
          fmt::format("[import] {}: {} is {} at element {}", path_, name, bad->value, bad->index));
    return x;
  }

  const TransformerPlan& plan_;
  std::string path_;
  WeightSource source_;
  std::map<std::string, const SafetensorsEntry*> entries_;  // by the names to look up
  std::set<std::string> used_, packed_;
  Names missing_, misshaped_, left_;
};

/// Returns `parameters/<path>`, f32. `path` is a safetensors file or an index. Throws one FileError that
/// names all tensors that are missing, have other shapes or types, or have no place. Throws for values that
/// are NaN or infinite, and as WeightSource.
StateDict planned_weights(const TransformerPlan& plan, const std::string& path,
                          const std::vector<WeightRename>& renames) {
  return PlannedWeights(plan, path, renames).run();
}

}  // namespace
}  // namespace fq::detail

namespace fq {
namespace {

namespace fs = std::filesystem;

// Families share a planner if they differ only in settings, as Llama, Mistral, Qwen2 and Qwen3.
const std::map<std::string, detail::Planner>& planners() {
  static const std::map<std::string, detail::Planner> table{
      {"BertForMaskedLM", detail::plan_bert},   {"BertForSequenceClassification", detail::plan_bert},
      {"BertModel", detail::plan_bert},         {"GPT2LMHeadModel", detail::plan_gpt2},
      {"LlamaForCausalLM", detail::plan_llama}, {"MistralForCausalLM", detail::plan_llama},
      {"Qwen2ForCausalLM", detail::plan_llama}, {"Qwen3ForCausalLM", detail::plan_llama},
  };
  return table;
}

bool is_folder(const std::string& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

fs::path config_path(const std::string& path) {
  return (is_folder(path) ? fs::path(path) : fs::path(path).parent_path()) / "config.json";
}

}  // namespace

std::vector<std::string> transformer_architectures() {
  std::vector<std::string> names;
  for (const auto& [name, planner] : planners()) names.push_back(name);
  return names;
}

bool is_transformer(const std::string& path) {
  const bool weights = path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json");
  return (weights || is_folder(path)) && is_there(config_path(path));
}

std::string transformer_weights(const std::string& path) {
  if (!is_folder(path)) return path;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (const fs::path file = fs::path(path) / name; is_there(file)) return file.string();
  const bool pickled = is_there(fs::path(path) / "pytorch_model.bin");
  throw FileError(
      path, {},
      fmt::format("[import] {} has neither model.safetensors nor model.safetensors.index.json{}", path,
                  pickled ? ", and pytorch_model.bin, a pickle, is not read: save it by "
                            "save_pretrained(.., safe_serialization=True)"
                          : ""));
}

ImportedModel import_transformers(const std::string& path, const ImportOptions& options,
                                  const std::vector<WeightRename>& renames) {
  const detail::TransformerConfig config(config_path(path).string());
  const std::string architecture = config.architecture();
  const auto planner = planners().find(architecture);
  if (planner == planners().end())
    throw FileError(config.path(), {},
                    fmt::format("[import] {}: the architecture '{}' is not supported, {} are. Export other "
                                "networks with torch.onnx.export",
                                config.path(), architecture, fmt::join(transformer_architectures(), ", ")));
  // A plan has shapes but no tensors. Sizes in config.json are untrusted until the weights confirm them.
  detail::TransformerPlan plan = planner->second(config, options);
  StateDict state = detail::planned_weights(plan, transformer_weights(path), renames);
  return {ModelSpec(options.name, std::move(plan.nodes)), plan.sample, plan.output, std::move(state), {}};
}

}  // namespace fq
