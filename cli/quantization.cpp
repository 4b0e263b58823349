#include "fakequant/cli/quantization.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/calibration.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/flags/removed.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/placed_error.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/config/detail/quant_rules.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/network/detail/named_values.h"
#include "fakequant/train/qat_defaults.h"
#include "fakequant/train/sensitivity/auto_quantize.h"

namespace fq::cli {
namespace {

using fq::detail::NamedValues;

using nlohmann::ordered_json;

const ordered_json& formats() {
  static const ordered_json all{
      {"int8", {{"num_bits", 8}}},
      {"int4", {{"num_bits", 4}}},
      {"fp8", {{"num_bits", {4, 3}}}},
      // NVFP4: E2M1 codes in blocks of 16 with E4M3 scales.
      {"nvfp4",
       {{"num_bits", {2, 1}}, {"block_sizes", {{"-1", 16}, {"type", "dynamic"}, {"scale_bits", {4, 3}}}}}},
  };
  return all;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& [name, fields] : formats().items()) names.push_back(name);
  return names;
}

/// With 4 bits, one range for all tokens costs four times as much accuracy as one range per token.
std::string default_ranges(const std::string& format) { return format == "int4" ? "token" : "tensor"; }

/// Adds the granularity of the ranges of keys and values, [N, heads, tokens, head size], to the format.
ordered_json with_ranges(const std::string& command, ordered_json fields, const NamedValues& given) {
  const std::string per = given.has("per") ? given.text("per") : default_ranges(given.name());
  const std::vector<std::string> names{"tensor", "head", "channel", "token"};
  FQ_CHECK(std::ranges::find(names, per) != names.end(), command, "--kv has no per={}{}", per,
           fq::detail::did_you_mean(per, names));
  // Axes of [N, heads, tokens, head size]. A range per token is a dynamic block over the last axis.
  if (per == "head") fields["axis"] = 1;
  if (per == "channel") fields["axis"] = {1, 3};
  if (per == "token") {
    fields["block_sizes"] = {{"-1", nullptr}};
    fields["dynamic"] = true;
  }
  return fields;
}

void add_rule(ordered_json& config, const char* pattern, ordered_json fields) {
  fields["pattern"] = pattern;
  fq::detail::append_rule(config, std::move(fields));
}

}  // namespace

void add_attention_flags(FlagSet& set, AttentionFormats& options) {
  set.choice(options.attention, "attention", "FORMAT", format_names(),
             "format of the queries, keys, values and probabilities in attention: int8, int4, fp8 or "
             "nvfp4 (default: floats)")
      .value(
          options.kv, "kv", "FORMAT",
          "format of cached keys and values, with priority over --attention: int8, int4, fp8 or nvfp4; with "
          "int8,per=head (or tensor, channel, token) a range for each; int4 has one for each token "
          "(default: as --attention)");
}

void add_attention_rules(const AttentionFormats& options, ordered_json& config, const std::string& command) {
  if (options.attention) {
    const ordered_json& fields = formats().at(*options.attention);
    // Names of ModelOpt: q, k and v of the batched products, and the probabilities after softmax.
    for (const char* pattern : {"*bmm_quantizer", "*softmax_quantizer"}) add_rule(config, pattern, fields);
  }
  if (!options.kv) return;
  const NamedValues given(command, "kv", *options.kv, format_names(), [](const auto& name) {
    return name == "nvfp4" ? std::vector<std::string>{} : std::vector<std::string>{"per"};
  });
  const ordered_json fields = with_ranges(command, formats().at(given.name()), given);
  // Appended after the rules of --attention, so these override them for keys and values.
  for (const char* pattern : {"*k_bmm_quantizer", "*v_bmm_quantizer"}) add_rule(config, pattern, fields);
}

namespace {

using nlohmann::ordered_json;

bool is_plan(const ordered_json& config) { return config.is_object() && config.contains("kind"); }

/// Calls `use`. Errors of a config name the line in --config.
template <class Use>
decltype(auto) with_place(const QuantizationOptions& options, Use&& use) try {
  return use();
} catch (const fq::detail::PlacedError& error) {
  if (!options.config) throw;
  const auto text = fq::detail::JsonText::load(*options.config, "quantize");
  // The config of a plan is under the key "quantization" of the file.
  const std::string pointer = (is_plan(text->value()) ? "/quantization" : "") + error.pointer();
  const ordered_json::json_pointer key(pointer.substr(0, pointer.find('/', 1)));
  if (!text->value().contains(key)) throw;  // the key is from a flag
  const std::string message = error.what();
  text->fail(pointer, message.substr(message.find("] ") + 2));
}

/// Sets the method and keeps options and rules of an algorithm.
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

// "none" places quantizers without choosing ranges.
std::vector<std::string> methods() {
  auto out = weight_methods();
  out.emplace_back("none");
  return out;
}

/// Moves an algorithm on weights from "algorithm" to "weight_algorithm", so that --method can replace the
/// former.
void keep_weight_algorithm(ordered_json& config) {
  if (config.contains("weight_algorithm") || !config.contains("algorithm")) return;
  const auto parsed = QuantConfig::from_json({{"algorithm", config["algorithm"]}});
  if (parsed.weight_algorithm.empty()) return;
  config["weight_algorithm"] =
      parsed.weight_options ? ordered_json(*parsed.weight_options) : ordered_json::object();
  config["weight_algorithm"]["method"] = parsed.weight_algorithm;
}

/// Returns the config of a file, or of the plan in it, without the settings of training.
ordered_json config_file(const std::string& path, bool trains) {
  ordered_json config = fq::detail::JsonText::load(path, "quantize")->value();
  FQ_CHECK(config.is_object(), "quantize", "{}: a quantization config is a JSON object", path);
  // Flags has read this object already.
  if (trains) config.erase("training");
  if (!is_plan(config)) return config;
  FQ_CHECK(config["kind"] == "fakequant-plan", "quantize",
           "{} is of kind {}: use a quantization config or a plan", path, config["kind"].dump());
  return fq::detail::parse_json<ordered_json>(QuantizationPlan::load(path).config);
}

ordered_json read_preset(const QuantizationOptions& options, bool choose_edges) {
  PresetChoices choices;
  choices.weight_method = options.weight_method;
  // A plan chooses the first and the last layer like all others, unless --edge-bits is given.
  if (choose_edges) choices.edge_bits = 0;
  if (options.edge_bits) choices.edge_bits = options.edge_bits;
  return naming_flags([&] { return preset_config(options.preset.value_or("int8"), choices); });
}

void check_percentile(const QuantizationOptions& options, const CalibrationOptions& calibration,
                      const QuantConfig& config) {
  if (!calibration.percentile) return;
  // A rule of the config may use the percentile for some quantizers only.
  const auto rules = [](const auto& rule) { return rule.method == "percentile"; };
  const auto fields = [](const auto& rule) { return rule.fields.calib_method == "percentile"; };
  FQ_CHECK(!options.skips_calibration() &&
               (config.algorithm == "percentile" || std::ranges::any_of(config.calibration, rules) ||
                std::ranges::any_of(config.rules, fields)),
           options.command, "{} is for --method percentile: use that too, or leave it out",
           flag_text(options.command, "percentile"));
}

void check_presets_own(bool given, const char* flag, const char* remedy, const QuantizationOptions& options) {
  FQ_CHECK(!options.config || !given, options.command, "{} goes with --preset: write {} into {} instead",
           flag_text(options.command, flag), remedy, options.config.value_or(""));
}

}  // namespace

std::string QuantizationOptions::first_detail() const {
  const std::pair<const char*, bool> details[]{{"target", target.has_value()},
                                               {"scale", scale.has_value()},
                                               {"edge-bits", edge_bits.has_value()},
                                               {"attention", attention.attention.has_value()},
                                               {"kv", attention.kv.has_value()},
                                               {"strict", strict},
                                               {"keep-bn", keep_bn},
                                               {"method", method.has_value()},
                                               {"weight-method", weight_method.has_value()},
                                               {"algorithm", algorithm.has_value()}};
  const auto found = std::ranges::find_if(details, [](const auto& detail) { return detail.second; });
  return found == std::end(details) ? std::string() : flag_text(command, found->first);
}

void add_preset_flag(FlagSet& set, QuantizationOptions& options) {
  set.value(options.preset, "preset", "NAME",
            "int8, int8_weight_only, ternary, binary, w4a8, w3a8, w2a8, w4a4, w3a3, w2a2, int4_blockwise, "
            "int2_blockwise, fp8, fp8_per_channel_per_token, fp8_2d_blockwise, nvfp4, mxfp8, mxfp6, mxfp4, "
            "mxint8, or a ModelOpt constant (calibrate without --config: int8); for one engine alone: "
            "int8_dynamic (ort_dynamic), 8da8w and 8da4w (xnnpack), q4_0 and q8_0 (ggml)");
}

void add_config_flags(FlagSet& set, QuantizationOptions& options) {
  set.config_file(
         options.config,
         options.command == "qat"
             ? "a quantization config (JSON) instead of a preset; its object \"training\" has settings"
             : "a quantization config (JSON) instead of a preset")
      .choice(options.target, "target", "NAME", target_names(),
              "ort, tensorrt, ort_dynamic, xnnpack, ggml, openvino (as ort) or none: the engine the numbers "
              "are for (default: of the config or the preset, ort)");
}

void add_format_flags(FlagSet& set, QuantizationOptions& options) {
  set.choice(options.scale, "scale", "NAME", {"free", "pow2"},
             "free or pow2: scales raised to powers of two (default: of the config, free)")
      .value(options.edge_bits, "edge-bits", "BITS", {0, 16},
             "bits in the first and last layer, and in additions and pools if activations have at most 4; 8 "
             "(E4M3) with nvfp4 and mxfp4; 0: as the preset (default: 8 with presets "
             "of 4 bits and fewer, else 0)");
  add_attention_flags(set, options.attention);
  set.toggle(options.strict, "strict",
             "a layer that no engine can multiply codes of is an error, not a warning")
      .toggle(options.keep_bn, "keep-bn",
              "do not fold batch normalisation first. An export folds it, which changes the rounding, except "
              "for integers with free scales");
}

void add_method_flag(FlagSet& set, QuantizationOptions& options) {
  set.choice(options.method, "method", "NAME", methods(),
             "max, moving_average, percentile, entropy, mse, octav, lsq, mse_search, or none for no ranges "
             "(default: of the config; one_pass_mse with presets of 4 bits and fewer, else max)");
}

void add_weight_flags(FlagSet& set, QuantizationOptions& options) {
  set.choice(options.weight_method, "weight-method", "NAME", weight_methods(),
             "calibration of weights, by a method without passes over data (default: of the config; mse with "
             "presets "
             "of 4 bits and fewer, else max)")
      .choice(options.algorithm, "algorithm", "NAME", QuantConfig::weight_algorithm_names(),
              "algorithm on weights and scales: " +
                  fq::detail::alternatives(QuantConfig::weight_algorithm_names()) +
                  " (default: of the config, none)");
}

void add_calibrating_flags(FlagSet& set, QuantizationOptions& quantization, CalibrationOptions& calibration) {
  add_config_flags(set, quantization);
  add_format_flags(set, quantization);
  set.group("Calibration");
  add_method_flag(set, quantization);
  add_weight_flags(set, quantization);
  add_percentile_flag(set, calibration);
  add_samples_flag(set, calibration);
}

Quantization checked_quantization(const QuantizationOptions& options, ordered_json given) {
  return with_place(options, [&]() -> Quantization {
    QuantConfig config = QuantConfig::from_json(given);
    ptq::Algorithm algorithm(config);
    return {std::move(given), std::move(config), std::move(algorithm)};
  });
}

Quantization read_quantization(const QuantizationOptions& options, bool choose_edges) {
  FQ_CHECK(!options.preset || !options.config, options.command, "--preset and --config: use one");
  ordered_json config = options.config ? config_file(*options.config, options.command == "qat")
                                       : read_preset(options, choose_edges);
  check_presets_own(options.edge_bits.has_value(), "edge-bits", "a rule", options);
  check_presets_own(options.weight_method.has_value(), "weight-method", "a rule", options);
  check_presets_own(options.attention.attention.has_value(), "attention", "rules for '*bmm_quantizer'",
                    options);
  check_presets_own(options.attention.kv.has_value(), "kv", "rules for '*bmm_quantizer'", options);
  add_attention_rules(options.attention, config, options.command);
  if (options.target) config["target"] = *options.target;
  if (options.scale) config["scale"] = *options.scale;
  if (options.strict) config["strict"] = true;
  if (options.algorithm) config["weight_algorithm"] = *options.algorithm;
  if (options.method && !options.skips_calibration()) {
    // Must come before `set_method`, which overwrites the key that may name an algorithm on weights.
    with_place(options, [&] { keep_weight_algorithm(config); });
    set_method(config, *options.method);
  }
  return checked_quantization(options, std::move(config));
}

ordered_json read_base_quantization(const QuantizationOptions& options) {
  ordered_json config = options.config ? config_file(*options.config, false) : ordered_json::object();
  if (options.target) config["target"] = *options.target;
  return checked_quantization(options, std::move(config)).json;
}

std::string quantization_text(const QuantizationOptions& options, const Quantization& chosen) {
  std::string from = options.config.value_or("rules");
  if (chosen.json.contains("preset")) from = "preset " + chosen.json["preset"].get<std::string>();
  if (!options.preset && !options.config) from += " (the default; --preset selects another)";
  return from + ", " + describe_choice(chosen.config);
}

std::string quantization_step(const QuantizationOptions& options) {
  const std::string by = options.config ? *options.config : "preset " + options.preset.value_or("int8");
  return fmt::format("quantize by {}{}", by, options.target ? " for " + *options.target : "");
}

void place_quantizers(Network& network, const QuantizationOptions& options,
                      const CalibrationOptions& calibration, const Quantization& chosen,
                      std::optional<bool> images) {
  check_calibration_options(calibration, options.command);
  if (images) {
    check_percentile(options, calibration, chosen.config);
    check_weight_algorithm(chosen.algorithm, calibration, *images, options.command);
  }
  with_place(options, [&] { fold_and_quantize(network, chosen.json, options.keep_bn); });
}

std::optional<CollectedSamples> choose_ranges(Network& network, const QuantizationOptions& options,
                                              const CalibrationOptions& calibration,
                                              const LoaderOptions& batches,
                                              const std::optional<std::string>& import,
                                              std::shared_ptr<const Dataset> data, Output& output) {
  // Imported ranges stay: calibration only fills the quantizers that the file does not have.
  const bool calibrates = !options.skips_calibration() && (data != nullptr || calibration.takes_states());
  if (import) import_ranges(network, *import, calibrates, options.command, output);
  if (!calibrates) return std::nullopt;
  auto collected = calibrate_network(network, calibration, batches, data, output, import.has_value());
  warn_of_quantizers(network, data, "calibrate");
  // Without all ranges, the network is only partly quantized, and its accuracy means little.
  if (!uncalibrated_quantizers(network.module()).empty()) return collected;
  if (const auto found = sample_accuracy(network, data)) {
    output.line(found->text());
    warn_near_chance(*found, network, options.command);
  }
  return collected;
}

}  // namespace fq::cli
