#include "fakequant/export/transformers/import.h"

#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/error.h"
#include "fakequant/export/transformers/detail/plan.h"
#include "fakequant/export/transformers/detail/planned_weights.h"

namespace fq {
namespace {

namespace fs = std::filesystem;

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

fs::path config_of(const std::string& path) {
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
  return (weights || is_folder(path)) && is_there(config_of(path));
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
  const detail::TransformerConfig config(config_of(path).string());
  const std::string architecture = config.architecture();
  const auto planner = planners().find(architecture);
  if (planner == planners().end())
    throw FileError(config.path(), {},
                    fmt::format("[import] {}: the architecture is '{}': known are {}; of others take an ONNX "
                                "file by torch.onnx.export",
                                config.path(), architecture, fmt::join(transformer_architectures(), ", ")));
  detail::TransformerPlan plan = planner->second(config, options);
  StateDict state = detail::planned_weights(plan, transformer_weights(path), renames);
  const nlohmann::ordered_json model{{"name", options.name}, {"nodes", std::move(plan.nodes)}};
  return {ModelSpec::parse(model.dump()), plan.sample, plan.output, std::move(state), {}};
}

}  // namespace fq
