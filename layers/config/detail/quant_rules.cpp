#include "fakequant/layers/config/detail/quant_rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/descriptor_fields.h"
#include "fakequant/core/detail/placed_error.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/config/detail/quant_presets.h"
#include "fakequant/reference/modelopt.h"

namespace fq::detail {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

bool boolean(const char* key, const json& value) {
  FQ_CHECK(value.is_boolean(), "quantize", "'{}' is {}: use true or false", key, value.dump());
  return value.get<bool>();
}

template <class T>
// A null field is given, without a value: it restores the default.
void read_nullable(std::string_view name, const json& value, PartialQuantParams::Field<T>& field) {
  field.emplace();
  if (value.is_null()) return;
  T read{};
  read_field(name, value, read);
  field = std::move(read);
}

AmaxGradient read_amax_gradient(const json& value) {
  FQ_CHECK(value.is_string(), "quantize", "'amax_gradient' is {}: use \"clip\" or \"lsq\"", value.dump());
  return amax_gradient_from_name(value.get<std::string>());
}

std::vector<PartialQuantParams> read_sequence(const json& value) {
  FQ_CHECK(value.is_array() && !value.empty(), "quantize", "'sequence' is {}: use a list of fields",
           value.dump());
  std::vector<PartialQuantParams> out;
  for (const auto& part : value) {
    FQ_CHECK(part.is_object(), "quantize", "'sequence' has {}: use objects of fields", part.dump());
    locate_errors(fmt::format("/{}", out.size()),
                  [&] { out.push_back(PartialQuantParams::from_dict(part)); });
  }
  return out;
}

using Reader = void (*)(PartialQuantParams&, const json&);
/// Fields of a quantizer that its descriptor does not have.
constexpr std::pair<const char*, Reader> kOwn[] = {
    {"enable", [](PartialQuantParams& f, const json& v) { f.enable = boolean("enable", v); }},
    {"pass_through_bwd",
     [](PartialQuantParams& f, const json& v) {
       f.pass_through_bwd.emplace();
       if (!v.is_null()) f.pass_through_bwd = boolean("pass_through_bwd", v);
     }},
    {"binary",
     [](PartialQuantParams& f, const json& v) {
       f.binary.emplace();
       if (!v.is_null()) f.binary = boolean("binary", v);
     }},
    {"amax_gradient", [](PartialQuantParams& f, const json& v) { f.amax_gradient = read_amax_gradient(v); }},
    {"sequence", [](PartialQuantParams& f, const json& v) { f.sequence = read_sequence(v); }},
};

bool read_own(PartialQuantParams& fields, const std::string& key, const json& value) {
  for (const auto& [name, read] : kOwn)
    if (key == name) return read(fields, value), true;
  return false;
}

// Looks the key up among the fields of QuantDescriptor, whose list is in one place (visit_descriptor_fields).
bool read_descriptor(PartialQuantParams& fields, const std::string& key, const json& value) {
  bool known = false;
  visit_descriptor_fields(
      [&](std::string_view name, auto& field) {
        if (name != key) return;
        read_nullable(name, value, field);
        known = true;
      },
      fields);
  return known;
}

void read_partial(PartialQuantParams& fields, const std::string& key, const json& value) {
  if (read_own(fields, key, value) || read_descriptor(fields, key, value)) return;
  std::vector<std::string> own;
  for (const auto& [name, reader] : kOwn) own.emplace_back(name);
  unknown_field(key, std::move(own));
}

/// Returns the rules of a preset for a pattern: `{"pattern": "conv1.*", "preset": "w4a8"}`.
std::vector<QuantRule> expand_preset(const std::string& pattern, const json& fields) {
  FQ_CHECK(fields.size() == 1 && fields["preset"].is_string(), "quantize",
           "the rule '{}' is {}: a rule with a preset has no other fields", pattern, fields.dump());
  return preset_rules(fields["preset"].get<std::string>(), pattern);
}

/// Removes the pattern from the fields of a rule in a list, and returns it.
std::string take_pattern(json& fields, const std::string& key) {
  const char* names[] = {"pattern", "quantizer_name"};
  const auto* found = std::ranges::find_if(names, [&](const char* n) { return fields.contains(n); });
  FQ_CHECK(found != std::end(names) && fields[*found].is_string(), "quantize", "rule {} has no pattern", key);
  std::string pattern = fields[*found].get<std::string>();
  fields.erase(*found);
  return pattern;
}

std::vector<QuantRule> read_rules(const std::string& key, const ordered_json& entry, bool in_list) {
  FQ_CHECK(entry.is_object(), "quantize", "rule '{}' is not an object of fields", key);
  FQ_CHECK(!entry.contains("target"), "quantize",
           "rule '{}' has a target: one engine runs the whole model, use target next to the rules", key);
  // A copy, because take_pattern removes the pattern.
  json fields(entry);
  const std::string pattern = in_list ? take_pattern(fields, key) : key;
  if (fields.contains("preset")) return expand_preset(pattern, fields);
  return {{.pattern = pattern, .fields = PartialQuantParams::from_dict(fields)}};
}

/// Returns the module type of a PyTorch class with quantizers; empty for other classes.
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

/// Whether ModelOpt's constants exclude these layers by default, even in models without such layers
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

std::string pointer_step(const std::string& key) { return "/" + json_pointer_token(key); }

// Converts ModelOpt's field names to names of QuantDescriptor.
json translated(const std::string& pattern, const ordered_json& cfg) try {
  FQ_CHECK(cfg.is_object() && !cfg.empty(), "quantize", "its fields are {}: use an object", cfg.dump());
  return modelopt::descriptor_fields(json(cfg));
} catch (const ArgumentError& error) {
  throw ArgumentError(fmt::format("{} (rule '{}')", error.what(), pattern));
}

PartialQuantParams read_cfg(const std::string& pattern, const ordered_json& cfg) {
  if (!cfg.is_array()) return PartialQuantParams::from_dict(translated(pattern, cfg));
  FQ_CHECK(!cfg.empty(), "quantize", "rule '{}' is an empty list: use the fields of one quantizer or more",
           pattern);
  PartialQuantParams out;
  for (const auto& part : cfg)
    locate_errors(fmt::format("/{}", out.sequence.size()),
                  [&] { out.sequence.push_back(PartialQuantParams::from_dict(translated(pattern, part))); });
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
           "rule '{}' has neither cfg nor enable: use one of them", entry.pattern);
  const std::string module = module_type(entry.parent);
  // Rules of classes without quantizers here, like nn.BatchNorm2d, cannot match.
  if (!entry.parent.empty() && module.empty()) return;
  PartialQuantParams fields;
  if (!entry.cfg.is_null())
    fields = locate_errors(entry.cfg_place, [&] { return read_cfg(entry.pattern, entry.cfg); });
  // ModelOpt: a cfg enables the quantizer unless enable is false.
  if (!fields.enable) fields.enable = entry.enable.is_null() || entry.enable.get<bool>();
  const bool exception = !fields.enable.value_or(true) && is_usual_exception(entry.pattern);
  config.rules.push_back({.pattern = entry.pattern,
                          .fields = std::move(fields),
                          .replaces = !entry.cfg.is_null(),
                          .may_match_nothing = exception,
                          .module = module});
}

/// Returns the entry of ModelOpt's older form `{pattern: fields}`, where `enable` is one of the fields.
Entry pair_entry(const std::string& pattern, const ordered_json& value, const std::string& parent) {
  Entry entry{pattern == "default" ? "*" : pattern, parent, value, nullptr};
  if (!value.is_object()) return entry;
  if (value.contains("enable")) entry.enable = value["enable"];
  entry.cfg.erase("enable");
  if (entry.cfg.empty()) entry.cfg = nullptr;
  return entry;
}

void add_pair(QuantConfig& config, const std::string& key, const ordered_json& value) {
  // A key that is a PyTorch class has patterns below it.
  if (!key.starts_with("nn.")) return add(config, pair_entry(key, value, {}));
  FQ_CHECK(value.is_object(), "quantize", "rule '{}' is {}: use an object of patterns", key, value.dump());
  for (const auto& [pattern, fields] : value.items())
    locate_errors(pointer_step(pattern), [&, &pattern = pattern, &fields = fields] {
      add(config, pair_entry(pattern, fields, key));
    });
}

std::string text(const ordered_json& raw, const char* key) {
  if (!raw.contains(key) || raw[key].is_null()) return {};
  FQ_CHECK(raw[key].is_string(), "quantize", "'{}' of a rule is {}: use a string", key, raw[key].dump());
  return raw[key].get<std::string>();
}

Entry object_entry(const ordered_json& raw) {
  for (const auto& [key, value] : raw.items())
    FQ_CHECK(key == "quantizer_name" || key == "parent_class" || key == "cfg" || key == "enable", "quantize",
             "'{}' is not a key of a quant_cfg entry: use quantizer_name, parent_class, cfg and enable", key);
  return {text(raw, "quantizer_name"), text(raw, "parent_class"), raw.value("cfg", ordered_json()),
          raw.value("enable", ordered_json()), "/cfg"};
}

void add_list_entry(QuantConfig& config, const ordered_json& raw) {
  FQ_CHECK(raw.is_object() && !raw.empty(), "quantize", "an entry of 'quant_cfg' is {}: use an object",
           raw.dump());
  if (raw.contains("quantizer_name")) return add(config, object_entry(raw));
  for (const auto& [key, value] : raw.items())
    locate_errors(pointer_step(key), [&, &key = key, &value = value] { add_pair(config, key, value); });
}

}  // namespace

void add_rules(QuantConfig& config, const ordered_json& rules) {
  for (const auto& [key, entry] : rules.items()) {
    const std::string place = "/" + json_pointer_token(key);
    for (auto& rule : locate_errors(
             place, [&, &key = key, &entry = entry] { return read_rules(key, entry, rules.is_array()); })) {
      rule.place = "/rules" + place;
      config.rules.push_back(std::move(rule));
    }
  }
}

void add_modelopt_rules(QuantConfig& config, const ordered_json& quant_cfg) {
  FQ_CHECK(quant_cfg.is_structured(), "quantize",
           "'quant_cfg' is {}: use a list of entries or an object of patterns", quant_cfg.dump());
  const auto add_placed = [&](const std::string& key, auto&& add_entry) {
    const std::size_t first = config.rules.size();
    locate_errors(pointer_step(key), add_entry);
    for (std::size_t i = first; i < config.rules.size(); ++i)
      config.rules[i].place = "/quant_cfg" + pointer_step(key);
  };
  // "default" first: it means "*", and later rules override it.
  if (quant_cfg.is_object() && quant_cfg.contains("default"))
    add_placed("default", [&] { add_pair(config, "default", quant_cfg["default"]); });
  for (const auto& [key, value] : quant_cfg.items())
    if (quant_cfg.is_array() || key != "default")
      add_placed(key, [&, &key = key, &value = value] {
        quant_cfg.is_array() ? add_list_entry(config, value) : add_pair(config, key, value);
      });
}

void append_rule(nlohmann::ordered_json& config, nlohmann::ordered_json rule) {
  auto& rules = config["rules"];
  // push_back on null leaves an array without storage if the allocation fails, and its end() crashes.
  if (rules.is_null()) rules = nlohmann::ordered_json::array();
  rules.push_back(std::move(rule));
}

}  // namespace fq::detail

namespace fq {

PartialQuantParams PartialQuantParams::from_dict(const nlohmann::json& dict) {
  FQ_CHECK(dict.is_object(), "quantize", "the fields are {}: use an object of field: value", dict.dump());
  PartialQuantParams out;
  for (const auto& [key, value] : dict.items())
    detail::locate_errors("/" + detail::json_pointer_token(key),
                          [&, &key = key, &value = value] { detail::read_partial(out, key, value); });
  return out;
}

}  // namespace fq
