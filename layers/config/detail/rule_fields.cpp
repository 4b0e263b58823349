#include "fakequant/layers/config/detail/rule_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/descriptor_fields.h"
#include "fakequant/core/detail/text.h"

namespace fq::detail {
namespace {

template <class T>
bool has_value(const QuantFields::Field<T>& field) {
  return field && field->has_value();
}

/// What a later rule takes back: an axis takes blocks back, fields of one quantizer a sequence, and so on.
void take_back(const QuantFields& later, QuantFields& fields) {
  if (has_value(later.axis)) fields.block_sizes.reset();
  if (has_value(later.block_sizes)) fields.axis.reset();
  if (later.num_bits) fields.binary.reset();
  const bool of_one = later != QuantFields{.enable = later.enable};
  if (of_one && later.sequence.empty()) fields.sequence.clear();
}

void merge(const QuantFields& later, QuantFields& fields) {
  const auto take = [](const auto& from, auto& to) {
    if (from) to = from;
  };
  for_each_descriptor_field([&](const char*, const auto& from, auto& to) { take(from, to); }, later, fields);
  take(later.enable, fields.enable);
  take(later.pass_through_bwd, fields.pass_through_bwd);
  take(later.binary, fields.binary);
  take(later.amax_gradient, fields.amax_gradient);
  if (!later.sequence.empty()) fields.sequence = later.sequence;
}

void apply(const QuantRule& rule, MergedFields& out) {
  if (rule.replaces) out = {};
  take_back(rule.fields, out.all);
  take_back(rule.fields, out.by_user);
  merge(rule.fields, out.all);
  if (!out.all.enable) out.all.enable = true;
  if (rule.by_user) merge(rule.fields, out.by_user);
  out.place = rule.place;
}

}  // namespace

void append_rule(nlohmann::ordered_json& config, nlohmann::ordered_json rule) {
  auto& rules = config["rules"];
  // Null that becomes an array without memory for it is one of nothing, whose end crashes.
  if (rules.is_null()) rules = nlohmann::ordered_json::array();
  rules.push_back(std::move(rule));
}

MergedFields fields_for(const QuantConfig& config, const std::string& module,
                        const std::vector<std::string>& paths, std::vector<bool>& matched) {
  MergedFields out;
  for (std::size_t i = 0; i < config.rules.size(); ++i) {
    const QuantRule& rule = config.rules[i];
    const auto matches = [&](const auto& path) { return wildcard_match(rule.pattern, path); };
    if (std::ranges::none_of(paths, matches)) continue;
    matched[i] = true;
    if (rule.module.empty() || rule.module == module) apply(rule, out);
  }
  return out;
}

}  // namespace fq::detail
