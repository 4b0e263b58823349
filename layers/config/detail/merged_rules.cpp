#include "fakequant/layers/config/detail/merged_rules.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/descriptor_fields.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"

namespace fq::detail {
namespace {

template <class T>
bool has_value(const PartialQuantParams::Field<T>& field) {
  return field && field->has_value();
}

/// Resets the fields that a later rule replaces: its axis replaces blocks, its fields replace a sequence.
void reset_replaced(const PartialQuantParams& later, PartialQuantParams& fields) {
  if (has_value(later.axis)) fields.block_sizes.reset();
  if (has_value(later.block_sizes)) fields.axis.reset();
  // A number of bits means plain integers again.
  if (later.num_bits) fields.binary.reset();
  // A rule that gives only `enable` does not replace a sequence.
  const bool of_one = later != PartialQuantParams{.enable = later.enable};
  if (of_one && later.sequence.empty()) fields.sequence.clear();
}

// Copies the fields that the later rule gives.
void merge(const PartialQuantParams& later, PartialQuantParams& fields) {
  const auto take = [](const auto& from, auto& to) {
    if (from) to = from;
  };
  visit_descriptor_fields([&](const char*, const auto& from, auto& to) { take(from, to); }, later, fields);
  take(later.enable, fields.enable);
  take(later.pass_through_bwd, fields.pass_through_bwd);
  take(later.binary, fields.binary);
  take(later.amax_gradient, fields.amax_gradient);
  if (!later.sequence.empty()) fields.sequence = later.sequence;
}

/// Adds a rule. A rule that does not set `enable` enables the quantizer, unless an earlier rule disabled it.
void add_rule(const QuantRule& rule, MergedRules& out) {
  // ModelOpt's cfg replaces all earlier fields instead of adding to them.
  if (rule.replaces) out = {};
  reset_replaced(rule.fields, out.all);
  reset_replaced(rule.fields, out.by_user);
  merge(rule.fields, out.all);
  if (!out.all.enable) out.all.enable = true;
  if (rule.by_user) merge(rule.fields, out.by_user);
  out.place = rule.place;
}

/// Sets or resets the scheme of binary weights, which take their ranges from each step.
void apply_binary(const PartialQuantParams& fields, QuantParams& params, QuantDescriptorOptions& options) {
  const bool before = params.weight_scheme == &binary_weights();
  // Fields of a later set_quantizer_attributes may switch binary on or off, or not mention it.
  const bool now =
      fields.num_bits || fields.binary ? fields.binary && fields.binary->value_or(false) : before;
  if (now)
    params.weight_scheme = &binary_weights();
  else if (before)
    params.weight_scheme = &plain_weights();
  if (now)
    options.dynamic = options.narrow_range = true;
  else if (before && !fields.dynamic)
    options.dynamic = false;
}

}  // namespace

MergedRules merge_rules(const QuantConfig& config, const std::string& module,
                        const std::vector<std::string>& paths, std::vector<bool>& matched) {
  MergedRules out;
  for (std::size_t i = 0; i < config.rules.size(); ++i) {
    const QuantRule& rule = config.rules[i];
    const auto matches = [&](const auto& path) { return wildcard_match(rule.pattern, path); };
    if (std::ranges::none_of(paths, matches)) continue;
    // Also if the module type differs: the pattern has matched a quantizer.
    matched[i] = true;
    if (rule.module.empty() || rule.module == module) add_rule(rule, out);
  }
  return out;
}

void apply(const PartialQuantParams& fields, QuantParams& params) {
  FQ_CHECK(fields.sequence.empty(), "quantize", "'sequence' within one quantizer: use its fields alone");
  QuantDescriptorOptions options = params.descriptor.options();
  visit_descriptor_fields(
      [](const char*, const auto& field, auto& option, auto& fallback) {
        if (!field) return;
        // Given with a value, or given as null: the default.
        if (*field)
          option = **field;
        else
          option = fallback;
      },
      fields, options, QuantDescriptorOptions{});
  apply_binary(fields, params, options);
  params.descriptor = QuantDescriptor(std::move(options));
  params.enabled = fields.enable.value_or(params.enabled);
  if (fields.pass_through_bwd) params.pass_through_bwd = *fields.pass_through_bwd;
  params.amax_gradient = fields.amax_gradient.value_or(params.amax_gradient);
}

}  // namespace fq::detail
