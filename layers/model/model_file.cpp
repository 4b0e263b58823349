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

/// A text that names a built-in model becomes the text of its nodes.
std::shared_ptr<const JsonText> with_nodes(std::shared_ptr<const JsonText> text) {
  const JsonValue root(*text);
  if (root.is_array()) return text;
  const bool builtin = root.has("model");
  if (builtin)
    root.expect_keys({"model", "options"}, "beside \"model\"");
  else
    root.expect_keys({"name", "nodes", "model"}, "of a model");
  if (!builtin) return text;
  const auto name = root.at("model").choice(builtin_models());
  if (!root.has("options"))
    return std::make_shared<const JsonText>(detail::builtin_text(name, nullptr), name);
  const auto options = root.at("options");
  return std::make_shared<const JsonText>(detail::builtin_text(name, &options), name);
}

std::string model_name(const JsonText& text) {
  const JsonValue root(text);
  return root.has("name") ? root.at("name").string() : "model";
}

}  // namespace

ModelSpec::ModelSpec(std::shared_ptr<const JsonText> text)
    : text_(with_nodes(std::move(text))), name_(model_name(*text_)) {
  canonical_ = std::make_shared<const ordered_json>(
      ordered_json{{"name", name_}, {"nodes", detail::canonical_nodes(detail::node_list(*text_))}});
}

ModelSpec ModelSpec::parse(std::string_view text, const std::string& file) {
  return ModelSpec(std::make_shared<const JsonText>(text, "model", file));
}

ModelSpec ModelSpec::builtin(std::string_view name, std::string_view options) {
  return ModelSpec(std::make_shared<const JsonText>(builtin_model_text(name, options), std::string(name)));
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
  return ModelSpec(JsonText::load(file_or_name, "model"));
}

std::string ModelSpec::text() const {
  return fmt::format("{{\"name\": {}, \"nodes\": {}}}\n", ordered_json(name_).dump(),
                     detail::nodes_text((*canonical_)["nodes"], 0));
}

const ordered_json& ModelSpec::json() const noexcept { return *canonical_; }

bool operator==(const ModelSpec& a, const ModelSpec& b) {
  return nlohmann::json(*a.canonical_) == nlohmann::json(*b.canonical_);
}

}  // namespace fq
