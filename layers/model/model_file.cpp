#include "fakequant/layers/model/model_file.h"

#include <algorithm>
#include <filesystem>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/model/builtin_models.h"
#include "fakequant/layers/model/detail/model_nodes.h"

namespace fq {
namespace {

using detail::JsonText;
using detail::JsonValue;
using nlohmann::ordered_json;

std::string name_in(const JsonValue& root) { return root.has("name") ? root.at("name").string() : "model"; }

}  // namespace

ModelSpec::ModelSpec(std::string name, detail::ModelNodes nodes, std::shared_ptr<const JsonText> text)
    : json_(std::make_shared<const ordered_json>(detail::model_json(name, nodes))), name_(std::move(name)) {
  if (text == nullptr)
    text = std::make_shared<const JsonText>(JsonText::of_value(*json_, this->text(), name_));
  if (nodes.size() > detail::kMostNodes)
    detail::fail_too_many(detail::node_list(*text).at(detail::kMostNodes));
  source_ = std::make_shared<const detail::ModelSource>(
      detail::ModelSource{.nodes = std::move(nodes), .text = std::move(text)});
}

ModelSpec ModelSpec::of(std::shared_ptr<const JsonText> text) {
  const JsonValue root(*text);
  if (root.is_array()) return {"model", detail::read_nodes(root), std::move(text)};
  if (!root.has("model")) {
    root.expect_keys({"name", "nodes", "model"}, "of a model");
    return {name_in(root), detail::read_nodes(root.at("nodes")), std::move(text)};
  }
  root.expect_keys({"model", "options"}, "beside \"model\"");
  auto name = root.at("model").choice(builtin_models());
  if (!root.has("options")) return {name, detail::builtin_nodes(name, nullptr), nullptr};
  const auto options = root.at("options");
  return {name, detail::builtin_nodes(name, &options), nullptr};
}

ModelSpec ModelSpec::parse(std::string_view text, const std::string& file) {
  return of(std::make_shared<const JsonText>(text, "model", file));
}

ModelSpec ModelSpec::builtin(std::string_view name, std::string_view options) {
  return {std::string(name), detail::builtin_nodes(name, options), nullptr};
}

ModelSpec ModelSpec::load(const std::string& file_or_name, std::string_view options) {
  const auto names = builtin_models();
  if (std::ranges::find(names, file_or_name) != names.end()) return builtin(file_or_name, options);
  std::error_code error;
  const bool is_path = file_or_name.find('/') != std::string::npos || file_or_name.ends_with(".json");
  FQ_CHECK(is_path || std::filesystem::exists(file_or_name, error), "model",
           "'{}' is neither a file nor a built-in model{}", file_or_name,
           detail::did_you_mean(file_or_name, names));
  FQ_CHECK(options.empty(), "model", "options are for the built-in models: '{}' is a file", file_or_name);
  return of(JsonText::load(file_or_name, "model"));
}

std::string ModelSpec::text() const { return detail::model_text(*json_); }

const ordered_json& ModelSpec::json() const noexcept { return *json_; }

bool operator==(const ModelSpec& a, const ModelSpec& b) {
  return nlohmann::json(*a.json_) == nlohmann::json(*b.json_);
}

}  // namespace fq
