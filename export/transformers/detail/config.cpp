#include "fakequant/export/transformers/detail/config.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace fq::detail {
namespace {

// Limit of untrusted sizes. The product of two sizes then fits int64.
constexpr std::int64_t kLargest = std::int64_t{1} << 31;

// Names of ACT2FN in transformers. gelu_new, gelu_fast and gelu_pytorch_tanh are the same approximation by
// tanh.
const std::map<std::string, ModelNode>& activations() {
  const ModelNode gelu{.name = {}, .type = "gelu"}, silu{.name = {}, .type = "silu"};
  const ModelNode relu{.name = {}, .type = "relu"};
  const ModelNode tanh{.name = {}, .type = "gelu", .options = {{"approximate", "tanh"}}};
  static const std::map<std::string, ModelNode> table{
      {"gelu", gelu},
      {"gelu_python", gelu},
      {"gelu_new", tanh},
      {"gelu_fast", tanh},
      {"gelu_pytorch_tanh", tanh},
      {"relu", relu},
      {"silu", silu},
      {"swish", silu},
  };
  return table;
}

}  // namespace

TransformerConfig::TransformerConfig(const std::string& path) : text_(JsonText::load(path, "import")) {
  const JsonValue root(*text_);
  if (!root.is_object()) root.fail("this is no config.json of a network: use an object");
}

TransformerConfig::TransformerConfig(const nlohmann::ordered_json& values, const std::string& file)
    : text_(std::make_shared<JsonText>(values.dump(1), "import", file)) {}

bool TransformerConfig::has(const std::string& key) const {
  const auto& all = text_->value();
  return all.contains(key) && !all.at(key).is_null();
}

std::int64_t TransformerConfig::size(const std::string& key) const { return at(key).integer(1, kLargest); }

std::int64_t TransformerConfig::size_or(const std::string& key, std::int64_t fallback) const {
  return has(key) ? size(key) : fallback;
}

double TransformerConfig::number_or(const std::string& key, double fallback, double low, double high) const {
  return has(key) ? at(key).number(low, high) : fallback;
}

bool TransformerConfig::flag_or(const std::string& key, bool fallback) const {
  return has(key) ? at(key).boolean() : fallback;
}

std::string TransformerConfig::text_or(const std::string& key, const std::string& fallback) const {
  return has(key) ? at(key).string() : fallback;
}

std::string TransformerConfig::architecture() const {
  if (!has("architectures")) return {};
  const auto all = at("architectures").elements();
  return all.empty() ? std::string() : all.front().string();
}

ModelNode TransformerConfig::activation(const std::string& key, const std::string& fallback) const {
  if (!has(key)) return activations().at(fallback);
  std::vector<std::string> names;
  for (const auto& [name, node] : activations()) names.push_back(name);
  return activations().at(at(key).choice(names));
}

void TransformerConfig::expect(const std::string& key, bool value) const {
  if (flag_or(key, value) != value)
    at(key).fail(fmt::format("'{}' is {}, which is not computed: {} networks are", key, !value, value));
}

bool TransformerConfig::slides() const {
  // Newer files state the kind of each layer. Files of Qwen2 have a window that "use_sliding_window" switches
  // off.
  if (has("layer_types")) {
    const auto layers = at("layer_types").elements();
    return std::ranges::any_of(layers, [](const auto& each) { return each.string() == "sliding_attention"; });
  }
  return has("sliding_window") && flag_or("use_sliding_window", true);
}

void TransformerConfig::check_no_window() const {
  if (!slides() || !has("sliding_window")) return;
  const std::int64_t window = size("sliding_window");
  // A window as long as the longest text hides no token.
  if (window < size_or("max_position_embeddings", kLargest))
    at("sliding_window")
        .fail(fmt::format("a token sees only the {} nearest tokens, which is not supported: for shorter "
                          "texts, set max_position_embeddings to {}",
                          window, window));
}

}  // namespace fq::detail
