#include "fakequant/train/sensitivity/auto_quantize.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/config/detail/quant_presets.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/sensitivity/detail/format_search.h"
#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq {
namespace {

using nlohmann::ordered_json;

constexpr const char* kAuto = "auto_quantize";

ordered_json base_config(const std::string& text) {
  const auto base = detail::JsonText(text, kAuto).value();
  FQ_CHECK(base.is_object(), kAuto, "the config is no JSON object");
  FQ_CHECK(!base.contains("preset"), kAuto, "the config has a preset: name it among the formats");
  FQ_CHECK(!base.contains("quant_cfg"), kAuto, "the config has a quant_cfg: use rules");
  return base;
}

void check_constraint(const PlanConstraint& constraint) {
  const auto& [bits, budget] = constraint;
  FQ_CHECK(bits.has_value() != budget.has_value(), kAuto,
           "{} given: use either effective_bits or accuracy_budget",
           bits ? "both constraints are" : "no constraint is");
  FQ_CHECK(!bits || (*bits > 0 && *bits <= kFloatWeightBits), kAuto,
           "effective_bits is {}: use more than 0, up to {}", *bits, kFloatWeightBits);
  FQ_CHECK(!budget || (*budget >= 0 && *budget <= 1), kAuto, "accuracy_budget is {}: use 0 to 1", *budget);
}

void check_formats(const std::vector<std::string>& formats) {
  FQ_CHECK(!formats.empty(), kAuto, "there are no formats: use names of presets, or none");
  std::set<std::string> known;
  for (const auto& format : formats) {
    FQ_CHECK(known.insert(format).second, kAuto, "the format '{}' is given twice", format);
    // Throws for an unknown preset.
    if (format != detail::kNoFormat) (void)detail::preset_rules(format, "layer.*");
  }
}

// Returns one config per format: the user's settings with the format as preset, and without one for "none".
std::vector<QuantConfig> format_configs(const std::vector<std::string>& formats, ordered_json base) {
  std::vector<QuantConfig> out;
  for (const auto& format : formats) {
    base.erase("preset");
    if (format != detail::kNoFormat) base["preset"] = format;
    out.push_back(QuantConfig::from_json(base));
  }
  return out;
}

/// Returns a config with three groups of rules: formats of the layers, the user's rules, and rules that
/// disable float layers.
std::string config_text(ordered_json config, const QuantizationPlan& plan,
                        const std::function<bool(std::size_t)>& quantizes) {
  ordered_json rules = ordered_json::array();
  for (std::size_t i = 0; i < plan.layers.size(); ++i)
    if (quantizes(i))
      rules.push_back({{"pattern", plan.layers[i].layer + ".*"}, {"preset", plan.layers[i].format}});
  // Rules can be a list, or an object of patterns as in ModelOpt.
  if (config.contains("rules"))
    for (const auto& [pattern, fields] : config["rules"].items()) {
      auto& rule = rules.emplace_back(fields);
      if (config["rules"].is_object()) rule["pattern"] = pattern;
    }
  for (std::size_t i = 0; i < plan.layers.size(); ++i)
    if (!quantizes(i)) rules.push_back({{"pattern", plan.layers[i].layer + ".*"}, {"enable", false}});
  config["rules"] = std::move(rules);
  return config.dump();
}

struct Configs {
  ordered_json base;
  std::vector<QuantConfig> formats;
};

Configs checked_configs(Module& model, const AutoQuantizeOptions& options) {
  check_constraint(options.constraint);
  check_formats(options.formats);
  ordered_json base = base_config(options.config);
  auto configs = format_configs(options.formats, base);
  FQ_CHECK(options.calibration_samples >= 0 && options.score_samples >= 0, kAuto,
           "{} samples: use 1 or more, or 0 for all",
           std::min(options.calibration_samples, options.score_samples));
  FQ_CHECK(named_quantizers(model).empty(), kAuto, "the model is already quantized: use a float model");
  return {std::move(base), std::move(configs)};
}

}  // namespace

void check_auto_quantize(Module& model, const Shape& input_shape, const AutoQuantizeOptions& options) {
  const auto [base, configs] = checked_configs(model, options);
  const detail::EvaluationMode evaluating(model);
  // Quantizes without data, so that errors of the constraint come before a long run.
  std::vector<detail::FormatVariant> variants;
  for (std::size_t f = 0; f < configs.size(); ++f)
    variants.push_back(options.formats[f] == detail::kNoFormat
                           ? detail::FormatVariant{}
                           : detail::quantized_variant(model, configs[f], input_shape));
  (void)detail::reachable_layers(model, variants, input_shape, options);
}

QuantizationPlan auto_quantize(Module& model, DataLoader& data, const AutoQuantizeOptions& options) {
  const auto [base, configs] = checked_configs(model, options);
  const detail::EvaluationMode evaluating(model);
  detail::FormatSearch search(model, data, options, configs);
  const auto& [bits, budget] = options.constraint;
  const std::size_t point = bits ? search.find_by_bits(*bits) : search.find_by_accuracy(*budget);
  QuantizationPlan plan = search.plan(point);
  plan.constraint = options.constraint;
  plan.config = config_text(base, plan, [&](std::size_t i) { return search.quantizes(i, point); });
  // Last, because it changes the model: an error before it leaves the float model.
  search.install(point);
  return plan;
}

}  // namespace fq
