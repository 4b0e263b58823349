#include "fakequant/layers/model/model_file.h"

#include <algorithm>
#include <filesystem>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/model/builtin_models.h"
#include "fakequant/layers/model/detail/builtin_nodes.h"
#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/model/detail/model_text.h"

namespace fq {
namespace {

using detail::JsonText;
using detail::JsonValue;

std::string read_model_name(const JsonValue& root) {
  return root.has("name") ? root.at("name").string() : "model";
}

ModelSpec read_spec(const std::shared_ptr<const JsonText>& text) {
  const JsonValue root(*text);
  // Three forms: a list of nodes, an object with nodes, or a built-in model with options.
  if (root.is_array()) return {"model", detail::read_nodes(root, text)};
  if (!root.has("model")) {
    root.expect_keys({"name", "nodes", "model"}, "of a model");
    // The nodes share ownership of the text, for the lines of later errors.
    return {read_model_name(root), detail::read_nodes(root.at("nodes"), text)};
  }
  root.expect_keys({"model", "options"}, "beside \"model\"");
  auto name = root.at("model").choice(builtin_models());
  if (!root.has("options")) return {name, detail::builtin_nodes(name, nullptr)};
  const auto options = root.at("options");
  return {name, detail::builtin_nodes(name, &options)};
}

}  // namespace

ModelSpec::ModelSpec(std::string name, ModelNodes nodes)
    : nodes_(std::make_shared<const ModelNodes>(detail::checked_nodes(std::move(nodes)))),
      name_(std::move(name)) {}

ModelSpec ModelSpec::parse(std::string_view text, const std::string& file) {
  return read_spec(std::make_shared<const JsonText>(text, "model", file));
}

ModelSpec ModelSpec::builtin(std::string_view name, std::string_view options) {
  return {std::string(name), detail::builtin_nodes(name, options)};
}

ModelSpec ModelSpec::load(const std::string& file_or_name, std::string_view options) {
  const auto names = builtin_models();
  if (std::ranges::find(names, file_or_name) != names.end()) return builtin(file_or_name, options);
  std::error_code error;
  // A built-in name wins over a file of that name; "./mlp" names the file.
  const bool is_path = file_or_name.find('/') != std::string::npos || file_or_name.ends_with(".json");
  FQ_CHECK(is_path || std::filesystem::exists(file_or_name, error), "model",
           "'{}' is neither a file nor a built-in model{}", file_or_name,
           detail::did_you_mean(file_or_name, names));
  FQ_CHECK(options.empty(), "model", "options are for the built-in models: '{}' is a file", file_or_name);
  return read_spec(JsonText::load(file_or_name, "model"));
}

std::string ModelSpec::text() const { return detail::model_text(name_, *nodes_); }

bool operator==(const ModelSpec& a, const ModelSpec& b) {
  return a.name_ == b.name_ && detail::same_nodes(*a.nodes_, *b.nodes_);
}

}  // namespace fq
