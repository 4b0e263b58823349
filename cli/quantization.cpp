#include "fakequant/cli/quantization.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/calibration.h"
#include "fakequant/cli/fine_tuning/warnings.h"
#include "fakequant/cli/flags/attention_formats.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/import_ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/placed_error.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/qat_preset.h"
#include "fakequant/train/sensitivity/plan.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

bool is_plan(const ordered_json& config) { return config.is_object() && config.contains("kind"); }

/// Calls `use`, and gives its errors the line of --config that they are about.
template <class Use>
decltype(auto) with_place(const Flags& flags, Use&& use) try {
  return use();
} catch (const fq::detail::PlacedError& error) {
  if (!flags.given("config")) throw;
  const auto text = fq::detail::JsonText::load(flags.text("config"), "quantize");
  const std::string pointer = (is_plan(text->value()) ? "/quantization" : "") + error.pointer();
  const ordered_json::json_pointer key(pointer.substr(0, pointer.find('/', 1)));
  if (!text->value().contains(key)) throw;  // it is of a flag
  const std::string message = error.what();
  text->fail(pointer, message.substr(message.find("] ") + 2));
}

/// Options and rules of an algorithm stay.
void set_method(ordered_json& config, const std::string& method) {
  if (config.contains("algorithm") && config["algorithm"].is_object())
    config["algorithm"]["method"] = method;
  else
    config["algorithm"] = method;
}

std::vector<std::string> weight_methods() {
  const auto& all = QuantDescriptor::calib_methods();
  return {all.begin(), all.end()};
}

std::vector<std::string> methods() {
  auto out = weight_methods();
  out.emplace_back("none");
  return out;
}

/// An algorithm on weights that `algorithm` names makes room for --method.
void keep_weight_algorithm(ordered_json& config) {
  if (config.contains("weight_algorithm") || !config.contains("algorithm")) return;
  const auto parsed = QuantConfig::from_json({{"algorithm", config["algorithm"]}});
  if (parsed.weight_algorithm.empty()) return;
  config["weight_algorithm"] =
      parsed.weight_options ? ordered_json(*parsed.weight_options) : ordered_json::object();
  config["weight_algorithm"]["method"] = parsed.weight_algorithm;
}

/// What --config holds: a config, or a plan, which has one.
ordered_json config_file(const Flags& flags) {
  ordered_json config = fq::detail::JsonText::load(flags.text("config"), "quantize")->value();
  FQ_CHECK(config.is_object(), "quantize", "{}: a quantization config is a JSON object",
           flags.text("config"));
  if (!is_plan(config)) return config;
  FQ_CHECK(config["kind"] == "fakequant-plan", "quantize",
           "{} is of kind {}: give a quantization config or a plan", flags.text("config"),
           config["kind"].dump());
  return fq::detail::parse_json<ordered_json>(QuantizationPlan::load(flags.text("config")).config);
}

/// The config of --preset, with the choices that flags make beside it.
ordered_json preset_of(const Flags& flags) {
  PresetChoices choices;
  if (flags.given("weight-method")) choices.weight_method = flags.choice("weight-method", weight_methods());
  const bool chosen = flags.knows("effective-bits") && flags.given("effective-bits");  // edges too
  if (chosen) choices.edge_bits = 0;
  if (flags.given("edge-bits")) choices.edge_bits = flags.integer("edge-bits", 0, 16);
  return naming_flags(
      [&] { return preset_config(flags.given("preset") ? flags.text("preset") : "int8", choices); });
}

void check_percentile(const Flags& flags, const QuantConfig& config) {
  if (!flags.given("percentile")) return;
  const auto rules = [](const auto& rule) { return rule.method == "percentile"; };
  const auto fields = [](const auto& rule) { return rule.fields.calib_method == "percentile"; };
  FQ_CHECK(flags.text("method") != "none" &&
               (config.algorithm == "percentile" || std::ranges::any_of(config.calibration, rules) ||
                std::ranges::any_of(config.rules, fields)),
           flags.command(), "--percentile is for --method percentile: give that too, or leave it out");
}

/// What was chosen, also by leaving flags out.
std::string choice_text(const Flags& flags, const Quantization& chosen) {
  std::string from = flags.given("config") ? flags.text("config") : "rules";
  if (chosen.json.contains("preset")) from = "preset " + chosen.json["preset"].get<std::string>();
  if (!flags.given("preset") && !flags.given("config")) from += " (by default: --preset takes others)";
  return from + ", " + describe_choice(chosen.config);
}

/// `images`: whether there is data for an algorithm on weights; empty where nothing is calibrated.
void place_quantizers(Network& network, const Flags& flags, const Quantization& chosen,
                      std::optional<bool> images) {
  check_calibration_flags(flags);
  if (images) {
    check_percentile(flags, chosen.config);
    check_weight_algorithm(chosen.algorithm, flags, *images);
  }
  with_place(flags, [&] { fold_and_quantize(network, chosen.json, flags.on("keep-bn")); });
}

}  // namespace

Quantization checked_quantization(const Flags& flags, ordered_json given) {
  return with_place(flags, [&]() -> Quantization {
    QuantConfig config = QuantConfig::from_json(given);
    ptq::Algorithm algorithm(config);
    return {std::move(given), std::move(config), std::move(algorithm)};
  });
}

Quantization read_quantization(const Flags& flags) {
  FQ_CHECK(!flags.given("preset") || !flags.given("config"), flags.command(),
           "--preset and --config: give one");
  ordered_json config = flags.given("config") ? config_file(flags) : preset_of(flags);
  for (const char* flag : {"edge-bits", "weight-method"})
    FQ_CHECK(!flags.given("config") || !flags.given(flag), flags.command(),
             "--{} goes with --preset: write a rule into {} instead", flag, flags.text("config"));
  add_attention_rules(flags, config);
  if (flags.given("target")) config["target"] = flags.choice("target", target_names());
  if (flags.given("scale")) config["scale"] = flags.choice("scale", {"free", "pow2"});
  if (flags.on("strict")) config["strict"] = true;
  if (flags.given("algorithm"))
    config["weight_algorithm"] = flags.choice("algorithm", QuantConfig::weight_algorithm_names());
  if (flags.given("method") && flags.text("method") != "none") {
    with_place(flags, [&] { keep_weight_algorithm(config); });
    set_method(config, flags.choice("method", methods()));
  }
  return checked_quantization(flags, std::move(config));
}

std::span<const char* const> quantizing_flags() {
  static constexpr std::array kFlags{"target",     "scale",   "edge-bits", "attention",     "kv",
                                     "strict",     "keep-bn", "method",    "weight-method", "algorithm",
                                     "percentile", "samples"};
  return kFlags;
}

ordered_json read_base_quantization(const Flags& flags) {
  ordered_json config = flags.given("config") ? config_file(flags) : ordered_json::object();
  if (flags.given("target")) config["target"] = flags.choice("target", target_names());
  return checked_quantization(flags, std::move(config)).json;
}

bool plan_quantization(Network& network, const Flags& flags, const PlannedFiles& planned, bool images) {
  if (flags.given("config") && planned.holds(flags.text("config"))) {
    check_calibration_flags(flags);
    return false;
  }
  place_quantizers(network, flags, read_quantization(flags), images && flags.text("method") != "none");
  return true;
}

std::optional<CollectedSamples> quantize_and_calibrate(Network& network, const Flags& flags,
                                                       const Quantization& quantization,
                                                       std::shared_ptr<const Dataset> data, Output& output,
                                                       bool calibrate) {
  const bool ranges = flags.text("method") != "none" && (data != nullptr || takes_states(flags));
  output.line(choice_text(flags, quantization));
  place_quantizers(network, flags, quantization,
                   calibrate ? std::optional(ranges && data != nullptr) : std::nullopt);
  calibrate = calibrate && ranges;
  const bool imports = flags.knows("import") && flags.given("import");
  if (imports) import_ranges(network, flags, calibrate, output);
  if (!calibrate) return std::nullopt;
  auto collected = calibrate_network(network, flags, data, output, imports);
  warn_of_quantizers(network, data, "calibrate");
  if (!uncalibrated_quantizers(network.module()).empty()) return collected;
  if (const auto found = sample_accuracy(network, data)) {
    output.line(found->text());
    warn_near_chance(*found, network, flags.command());
  }
  return collected;
}

}  // namespace fq::cli
