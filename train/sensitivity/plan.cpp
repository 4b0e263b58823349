#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/train/sensitivity/auto_quantize.h"
#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPlan = "plan";
constexpr double kAny = std::numeric_limits<double>::max();

// JSON has no NaN: null is a number that was not measured, for example the loss without labels.
ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

// Keys of files: docs/formats.md describes them.
ordered_json damage_json(const Damage& damage) {
  return {{"loss_change", finite_or_null(damage.loss_change)},
          {"accuracy_change", finite_or_null(damage.accuracy_change)},
          {"divergence", finite_or_null(damage.divergence)}};
}

ordered_json score_json(const Evaluation& score) {
  return {
      {"loss", score.loss}, {"accuracy", score.accuracy}, {"correct", score.correct}, {"count", score.count}};
}

ordered_json scores_json(const std::vector<FormatScore>& scores) {
  ordered_json out = ordered_json::array();
  for (const auto& score : scores) {
    auto& entry = out.emplace_back(ordered_json{{"format", score.format}, {"bits", score.bits}});
    entry.update(damage_json(score.damage));
  }
  return out;
}

ordered_json layer_json(const PlannedLayer& layer) {
  // The numbers of the chosen format are repeated at the layer, for readers of the file.
  const FormatScore& chosen = layer.chosen();
  ordered_json out{{"layer", layer.layer},     {"type", layer.type},  {"format", layer.format},
                   {"weights", layer.weights}, {"bits", chosen.bits}, {"group", layer.group}};
  out.update(damage_json(chosen.damage));
  out["scores"] = scores_json(layer.scores);
  return out;
}

// Returns NaN for null, the reverse of finite_or_null.
double optional_number(const detail::JsonValue& entry, const char* key) {
  const auto value = entry.at(key);
  return value.json().is_null() ? std::numeric_limits<double>::quiet_NaN() : value.number(-kAny, kAny);
}

Damage read_damage(const detail::JsonValue& entry) {
  return {optional_number(entry, "loss_change"), optional_number(entry, "accuracy_change"),
          optional_number(entry, "divergence")};
}

PlannedLayer read_layer(const detail::JsonValue& entry, const std::vector<std::string>& formats) {
  PlannedLayer out{entry.at("layer").string(), entry.at("type").string(), entry.at("weights").integer(0),
                   static_cast<int>(entry.at("group").integer(0, 1 << 30)),
                   entry.at("format").choice(formats)};
  for (const auto& score : entry.at("scores").elements())
    out.scores.push_back(
        {score.at("format").choice(formats), score.at("bits").number(0, 64), read_damage(score)});
  if (std::ranges::find(out.scores, out.format, &FormatScore::format) == out.scores.end())
    entry.at("format").fail("'" + out.format + "' is not among the scores of the layer");
  return out;
}

PlanConstraint read_constraint(const detail::JsonValue& entry) {
  // An unknown constraint is an error, as any unknown key that changes a result.
  entry.expect_keys({"effective_bits", "accuracy_budget"});
  PlanConstraint out;
  if (entry.has("effective_bits")) out.effective_bits = entry.at("effective_bits").number(0, 64);
  if (entry.has("accuracy_budget")) out.accuracy_budget = entry.at("accuracy_budget").number(0, 1);
  return out;
}

QuantizationPlan read_plan(const detail::JsonValue& entry) {
  // The first check, so that another JSON file gets a clear message.
  if (!entry.is_object() || !entry.has("kind") || entry.at("kind").json() != "fakequant-plan")
    entry.fail("this is no plan: its \"kind\" is not \"fakequant-plan\"");
  // A newer version could have fields that this reader would ignore.
  (void)entry.at("version").integer(1, 1);
  QuantizationPlan out;
  for (const auto& format : entry.at("formats").elements()) out.formats.push_back(format.string());
  for (const auto& layer : entry.at("layers").elements())
    out.layers.push_back(read_layer(layer, out.formats));
  out.constraint = read_constraint(entry.at("constraint"));
  out.score = entry.at("score").choice({"loss", "divergence"}) == "loss" ? DamageScore::loss
                                                                         : DamageScore::divergence;
  out.effective_bits = entry.at("effective_bits").number(0, 64);
  out.gap = entry.at("gap").number(0, kAny);
  out.samples = entry.at("samples").integer(0);
  out.layer_runs = entry.at("layer_runs").integer(0);
  out.pass_runs = entry.at("pass_runs").integer(0);
  const auto reference = entry.at("float");
  out.reference.count = reference.at("count").integer(0);
  out.reference.correct = reference.at("correct").integer(0);
  out.reference.loss = reference.at("loss").number(0, kAny);
  out.reference.accuracy = reference.at("accuracy").number(0, 1);
  out.predicted = read_damage(entry.at("predicted"));
  out.measured = read_damage(entry.at("measured"));
  out.config = entry.at("quantization").json().dump();
  try {
    // Parsed once, so that an invalid config is reported with its place in the file.
    (void)out.quant_config();
  } catch (const ArgumentError& error) {
    entry.at("quantization").fail(error.what());
  }
  return out;
}

}  // namespace

nlohmann::ordered_json SensitivityReport::to_json() const {
  nlohmann::ordered_json out{{"kind", "fakequant-sensitivity"}, {"version", 1}, {"samples", samples}};
  out["float"] = score_json(reference);
  out["layer_runs"] = layer_runs;
  out["pass_runs"] = pass_runs;
  out["layers"] = nlohmann::ordered_json::array();
  for (const auto& layer : layers) {
    auto& entry = out["layers"].emplace_back(nlohmann::ordered_json{{"layer", layer.layer},
                                                                    {"type", layer.type},
                                                                    {"format", layer.format},
                                                                    {"weights", layer.weights},
                                                                    {"bits", layer.bits}});
    entry.update(damage_json(layer.damage));
  }
  return out;
}

const FormatScore& PlannedLayer::chosen() const {
  const auto found = std::ranges::find(scores, format, &FormatScore::format);
  FQ_CHECK(found != scores.end(), kPlan, "'{}' has no score for its format '{}'", layer, format);
  return *found;
}

QuantConfig QuantizationPlan::quant_config() const { return QuantConfig::parse(config); }

ordered_json QuantizationPlan::to_json() const {
  ordered_json out{{"kind", "fakequant-plan"}, {"version", 1}, {"samples", samples}};
  out["float"] = score_json(reference);
  out["constraint"] = ordered_json::object();
  if (constraint.effective_bits) out["constraint"]["effective_bits"] = *constraint.effective_bits;
  if (constraint.accuracy_budget) out["constraint"]["accuracy_budget"] = *constraint.accuracy_budget;
  out["score"] = score == DamageScore::loss ? "loss" : "divergence";
  out["formats"] = formats;
  out["effective_bits"] = effective_bits;
  out["gap"] = gap;
  out["predicted"] = damage_json(predicted);
  out["measured"] = damage_json(measured);
  out["layer_runs"] = layer_runs;
  out["pass_runs"] = pass_runs;
  out["layers"] = ordered_json::array();
  for (const auto& layer : layers) out["layers"].push_back(layer_json(layer));
  out["quantization"] = detail::parse_json<ordered_json>(config);
  return out;
}

QuantizationPlan QuantizationPlan::from_json(const ordered_json& json) {
  // Through text, because errors name the position in it.
  const detail::JsonText text(json.dump(), kPlan);
  return read_plan(detail::JsonValue(text));
}

void QuantizationPlan::save(const std::string& path) const { write_file(path, to_json().dump(1) + "\n"); }

QuantizationPlan QuantizationPlan::load(const std::string& path) {
  const auto text = detail::JsonText::load(path, kPlan);
  return read_plan(detail::JsonValue(*text));
}

}  // namespace fq
