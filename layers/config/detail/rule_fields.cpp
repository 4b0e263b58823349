#include "fakequant/layers/config/detail/rule_fields.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/text.h"

namespace fq::detail {
namespace {

using nlohmann::json;

/// What a later rule takes back: an axis takes blocks back, fields of one quantizer a sequence, and so on.
void take_back(const json& later, json& fields) {
  const auto gives = [&](const char* key) { return later.contains(key) && !later[key].is_null(); };
  if (gives("axis")) fields.erase("block_sizes");
  if (gives("block_sizes")) fields.erase("axis");
  const bool one =
      std::ranges::any_of(later.items(), [](const auto& item) { return item.key() != "enable"; });
  if (one && !gives("sequence")) fields.erase("sequence");
}

void apply(const QuantRule& rule, Fields& out) {
  if (rule.replaces) out = {};
  take_back(*rule.fields, out.all);
  take_back(*rule.fields, out.by_user);
  out.all.update(*rule.fields);
  if (!rule.fields->contains("enable") && !out.all.contains("enable")) out.all["enable"] = true;
  if (rule.by_user) out.by_user.update(*rule.fields);
}

}  // namespace

Fields fields_for(const QuantConfig& config, const std::string& module, const std::vector<std::string>& paths,
                  std::vector<bool>& matched) {
  Fields out;
  for (std::size_t i = 0; i < config.rules.size(); ++i) {
    const QuantRule& rule = config.rules[i];
    const auto matches = [&](const auto& path) { return wildcard_match(rule.pattern, path); };
    if (std::ranges::none_of(paths, matches)) continue;
    matched[i] = true;
    if (rule.module.empty() || rule.module == module) apply(rule, out);
  }
  return out;
}

bool switched_on(const Fields& fields) {
  if (!fields.all.contains("enable")) return false;
  const json& enable = fields.all["enable"];
  FQ_CHECK(enable.is_boolean(), "quantize", "'enable' is {}: use true or false", enable.dump());
  return enable.get<bool>();
}

nlohmann::json without_nulls(nlohmann::json fields) {
  for (auto it = fields.begin(); it != fields.end();) it = it->is_null() ? fields.erase(it) : std::next(it);
  return fields;
}

bool has_blocks(const nlohmann::json& fields) {
  return fields.contains("block_sizes") && !fields["block_sizes"].is_null();
}

}  // namespace fq::detail
