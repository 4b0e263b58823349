#include "fakequant/layers/config/detail/modelopt_rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/placed_error.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/reference/modelopt.h"

namespace fq::detail {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Our name of a PyTorch class with quantizers; empty for the others.
std::string module_type(const std::string& parent) {
  constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"nn.Linear", "linear"},
      {"nn.Conv1d", "conv1d"},
      {"nn.Conv2d", "conv2d"},
      {"nn.Conv3d", "conv3d"},
      {"nn.ConvTranspose1d", "conv_transpose1d"},
      {"nn.ConvTranspose2d", "conv_transpose2d"},
      {"nn.ConvTranspose3d", "conv_transpose3d"}};
  for (const auto& [theirs, ours] : names)
    if (theirs == parent) return std::string(ours);
  return {};
}

/// Layers that ModelOpt's constants leave in floats, whether or not a model has them
/// (_default_disabled_quantizer_cfg of modelopt/torch/quantization/config.py, 0.47.0).
bool is_usual_exception(std::string_view pattern) {
  constexpr std::string_view patterns[] = {"*block_sparse_moe.gate*",
                                           "*linear_attn.conv1d*",
                                           "*self_attention.conv1d*",
                                           "*linear_attn.in_proj_a*",
                                           "*linear_attn.in_proj_b*",
                                           "*lm_head*",
                                           "*mixer.conv1d*",
                                           "*mlp.gate.*",
                                           "*mlp.shared_expert_gate.*",
                                           "*output_layer*",
                                           "*proj_out.*",
                                           "*router*",
                                           "mtp.*",
                                           "output.*",
                                           "*embed_vision*",
                                           "*vision_tower*",
                                           "*visual*",
                                           "*vision_model*",
                                           "*multi_modal_projector*"};
  return std::ranges::find(patterns, pattern) != std::end(patterns);
}

std::string step(const std::string& key) { return "/" + json_pointer_token(key); }

json translated(const std::string& pattern, const ordered_json& cfg) try {
  FQ_CHECK(cfg.is_object() && !cfg.empty(), "quantize", "its fields are {}: give an object", cfg.dump());
  return modelopt::descriptor_fields(json(cfg));
} catch (const ArgumentError& error) {
  throw ArgumentError(fmt::format("{} (rule '{}')", error.what(), pattern));
}

QuantFields fields_of(const std::string& pattern, const ordered_json& cfg) {
  if (!cfg.is_array()) return QuantFields::from_dict(translated(pattern, cfg));
  FQ_CHECK(!cfg.empty(), "quantize", "rule '{}' is an empty list: give the fields of one quantizer or more",
           pattern);
  QuantFields out;
  for (const auto& part : cfg)
    at_place(fmt::format("/{}", out.sequence.size()),
             [&] { out.sequence.push_back(QuantFields::from_dict(translated(pattern, part))); });
  return out;
}

struct Entry {
  std::string pattern, parent;
  ordered_json cfg, enable;  // null where it is not given
  std::string cfg_place = {};
};

void add(QuantConfig& config, const Entry& entry) {
  FQ_CHECK(entry.enable.is_null() || entry.enable.is_boolean(), "quantize",
           "'enable' of rule '{}' is {}: use a bool", entry.pattern, entry.enable.dump());
  FQ_CHECK(!entry.cfg.is_null() || !entry.enable.is_null(), "quantize",
           "rule '{}' has neither cfg nor enable: give one of them", entry.pattern);
  const std::string module = module_type(entry.parent);
  if (!entry.parent.empty() && module.empty()) return;
  QuantFields fields;
  if (!entry.cfg.is_null())
    fields = at_place(entry.cfg_place, [&] { return fields_of(entry.pattern, entry.cfg); });
  if (!fields.enable) fields.enable = entry.enable.is_null() || entry.enable.get<bool>();
  const bool exception = !fields.enable.value_or(true) && is_usual_exception(entry.pattern);
  config.rules.push_back({.pattern = entry.pattern,
                          .fields = std::move(fields),
                          .replaces = !entry.cfg.is_null(),
                          .may_match_nothing = exception,
                          .module = module});
}

/// `{pattern: fields}` of the older form, where `enable` stands among the fields.
Entry of_pair(const std::string& pattern, const ordered_json& value, const std::string& parent) {
  Entry entry{pattern == "default" ? "*" : pattern, parent, value, nullptr};
  if (!value.is_object()) return entry;
  if (value.contains("enable")) entry.enable = value["enable"];
  entry.cfg.erase("enable");
  if (entry.cfg.empty()) entry.cfg = nullptr;
  return entry;
}

void add_pair(QuantConfig& config, const std::string& key, const ordered_json& value) {
  if (!key.starts_with("nn.")) return add(config, of_pair(key, value, {}));
  FQ_CHECK(value.is_object(), "quantize", "rule '{}' is {}: give an object of patterns", key, value.dump());
  for (const auto& [pattern, fields] : value.items())
    at_place(step(pattern),
             [&, &pattern = pattern, &fields = fields] { add(config, of_pair(pattern, fields, key)); });
}

std::string text(const ordered_json& raw, const char* key) {
  if (!raw.contains(key) || raw[key].is_null()) return {};
  FQ_CHECK(raw[key].is_string(), "quantize", "'{}' of a rule is {}: give a string", key, raw[key].dump());
  return raw[key].get<std::string>();
}

Entry of_object(const ordered_json& raw) {
  for (const auto& [key, value] : raw.items())
    FQ_CHECK(key == "quantizer_name" || key == "parent_class" || key == "cfg" || key == "enable", "quantize",
             "'{}' is not a key of a quant_cfg entry: use quantizer_name, parent_class, cfg and enable", key);
  return {text(raw, "quantizer_name"), text(raw, "parent_class"), raw.value("cfg", ordered_json()),
          raw.value("enable", ordered_json()), "/cfg"};
}

void add_entry_of_list(QuantConfig& config, const ordered_json& raw) {
  FQ_CHECK(raw.is_object() && !raw.empty(), "quantize", "an entry of 'quant_cfg' is {}: give an object",
           raw.dump());
  if (raw.contains("quantizer_name")) return add(config, of_object(raw));
  for (const auto& [key, value] : raw.items())
    at_place(step(key), [&, &key = key, &value = value] { add_pair(config, key, value); });
}

}  // namespace

void add_modelopt_rules(QuantConfig& config, const ordered_json& quant_cfg) {
  FQ_CHECK(quant_cfg.is_structured(), "quantize",
           "'quant_cfg' is {}: give a list of entries or an object of patterns", quant_cfg.dump());
  const auto add_at = [&](const std::string& key, auto&& add_entry) {
    const std::size_t first = config.rules.size();
    at_place(step(key), add_entry);
    for (std::size_t i = first; i < config.rules.size(); ++i)
      config.rules[i].place = "/quant_cfg" + step(key);
  };
  if (quant_cfg.is_object() && quant_cfg.contains("default"))
    add_at("default", [&] { add_pair(config, "default", quant_cfg["default"]); });
  for (const auto& [key, value] : quant_cfg.items())
    if (quant_cfg.is_array() || key != "default")
      add_at(key, [&, &key = key, &value = value] {
        quant_cfg.is_array() ? add_entry_of_list(config, value) : add_pair(config, key, value);
      });
}

}  // namespace fq::detail
