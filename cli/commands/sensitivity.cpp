#include "fakequant/train/sensitivity/sensitivity.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/layer_formats.h"
#include "fakequant/cli/quantization.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/network/qat.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostMeasured = std::int64_t{1} << 40;

struct SensitivityOptions {
  std::string checkpoint;
  DataOptions data = {.split = "train"};
  std::int64_t samples = 512;
  std::optional<std::string> report = {}, plan = {}, output = {};  ///< files to write
  std::optional<double> effective_bits = {};                       ///< bits of a weight on average
  std::optional<double> accuracy_budget = {};                      ///< percent
  std::optional<std::string> formats = {};                         ///< presets
  std::optional<DamageScore> score = {};
  QuantizationOptions quantization = {.command = "sensitivity"};
  GeneralOptions general;

  [[nodiscard]] bool makes_plan() const { return effective_bits || accuracy_budget; }
};

constexpr const char* kPlanFormats = "w4a8,int8,none";

AutoQuantizeOptions plan_options(const SensitivityOptions& options) {
  AutoQuantizeOptions out;
  out.constraint.effective_bits = options.effective_bits;
  // Percent on the command line, a share in the library.
  if (options.accuracy_budget) out.constraint.accuracy_budget = *options.accuracy_budget / 100;
  out.formats = listed_words(options.formats.value_or(kPlanFormats));
  out.config = read_base_quantization(options.quantization).dump();
  out.calibration_samples = 0;  // all drawn samples
  out.score = options.score.value_or(DamageScore::divergence);
  out.ranks = run_ranks();
  return out;
}

// These flags have no effect on the table of a calibrated network.
void check_plan_flags(const SensitivityOptions& options) {
  const std::pair<const char*, bool> given[]{{"plan", options.plan.has_value()},
                                             {"output", options.output.has_value()},
                                             {"formats", options.formats.has_value()},
                                             {"config", options.quantization.config.has_value()},
                                             {"target", options.quantization.target.has_value()},
                                             {"keep-bn", options.quantization.keep_bn}};
  for (const auto& [name, is_given] : given)
    FQ_CHECK(options.makes_plan() || !is_given, "sensitivity",
             "--{} is for a plan: use --effective-bits or --accuracy-budget", name);
  FQ_CHECK(!options.makes_plan() || !options.report, "sensitivity",
           "--report is for a calibrated network: a plan is written by --plan");
}

/// Opens the data for the measurement of the network.
std::shared_ptr<const Dataset> prepare_sensitivity(Network& network, const SensitivityOptions& options) {
  const std::string& file = options.checkpoint;
  check_not_compressed(network, "sensitivity", file);
  check_plan_flags(options);
  FQ_CHECK(network.quantized() || options.makes_plan(), "sensitivity",
           "{} is not quantized: run fakequant calibrate first, or give --effective-bits or "
           "--accuracy-budget for a plan",
           file);
  // A plan compares formats with floats, so it needs the float network.
  FQ_CHECK(!network.quantized() || !options.makes_plan(), "sensitivity",
           "{} is already quantized: a plan begins with a float checkpoint", file);
  auto data =
      open_network_data(network, options.data.data, options.data.split, Labels::if_there, "sensitivity");
  // Divergence compares outputs with the float outputs and needs no labels.
  FQ_CHECK(data->classes() > 0 || options.score != DamageScore::loss, "sensitivity",
           "--score loss needs labels, and {} has none: use data with y, or --score divergence",
           options.data.data);
  check_classifies(network, "sensitivity");
  return data;
}

void check_not_stopped() {
  if (stop_requested()) throw Interrupted("sensitivity", ": nothing was written");
}

ordered_json measure(Network& network, DataLoader& data, const SensitivityOptions& options, Output& output) {
  // A signal during the measurement only sets a flag, which is checked afterwards.
  const auto report = sensitivity(network.module(), data,
                                  {.order = options.score.value_or(DamageScore::loss), .ranks = run_ranks()});
  check_not_stopped();
  output.line(sensitivity_table(report));
  ordered_json result = report.to_json();
  if (options.report && is_first_rank()) write_file(*options.report, json_text(result));
  return result;
}

ordered_json make_plan(Network& network, DataLoader& data, const SensitivityOptions& options,
                       Output& output) {
  const auto plan = naming_flags([&] { return auto_quantize(network, data, plan_options(options)); });
  check_not_stopped();
  output.line(plan_table(plan));
  if (options.plan && is_first_rank()) plan.save(*options.plan);
  if (options.output && is_first_rank()) network.save(*options.output);
  return plan.to_json();
}

ordered_json measure_sensitivity(const SensitivityOptions& options, Network network,
                                 const std::shared_ptr<const Dataset>& samples, Output& output) {
  network.module().to(chosen_device(options.general, "sensitivity"));
  DataLoader loader(samples, {.batch_size = options.data.batch, .shuffle = false});
  const Stopwatch watch;
  ordered_json result = options.makes_plan() ? make_plan(network, loader, options, output)
                                             : measure(network, loader, options, output);
  output.line(fmt::format("measured in {}", duration(watch.seconds())));
  result["seconds"] = watch.seconds();
  return result;
}

FlagSet sensitivity_flags(SensitivityOptions& options) {
  FlagSet set("sensitivity",
              "Measures the cost of quantizing each layer alone in a calibrated network. For a float "
              "network, makes a plan: a format for each layer with the least total cost.",
              "CHECKPOINT --data FILE [--effective-bits BITS|--accuracy-budget PERCENT] [flags]");
  set.group("Files")
      .argument(options.checkpoint, "checkpoint", "FILE", "a calibrated checkpoint; for a plan, a float one")
      .required()
      .output(options.report, "report", "FILE", "write the table of a calibrated network there (JSON)",
              kind::sensitivity)
      .output(options.plan, "plan", "FILE", "write the plan there (JSON), a --config of calibrate and qat",
              kind::plan)
      .output(options.output, "output,o", "FILE",
              "write the network there, quantized and calibrated by the plan", kind::checkpoint);
  add_data_flags(set, options.data);
  set.value(options.samples, "samples", "SAMPLES", {1, kMostMeasured}, "samples to calibrate and measure on");
  set.group("Plan")
      .value(options.effective_bits, "effective-bits", "BITS", {0, kFloatWeightBits},
             "largest average number of bits of a weight")
      .value(options.accuracy_budget, "accuracy-budget", "PERCENT", {0, 100},
             "largest loss of accuracy in points; the plan has the fewest bits")
      .value(options.formats, "formats", "LIST",
             fmt::format("presets to choose from, and none for layers that stay float (default: {})",
                         kPlanFormats))
      .choice(options.score, "score", "NAME",
              NamedChoices<DamageScore>{{"loss", DamageScore::loss}, {"divergence", DamageScore::divergence}},
              "loss (default of a table, which is sorted by it) or divergence (default of a plan, which "
              "minimizes the sum)")
      .value(options.quantization.config, "config", "FILE",
             "target, scale, algorithm and rules for every format: a config without preset")
      .choice(options.quantization.target, "target", "NAME", target_names(),
              "ort, tensorrt, ort_dynamic, xnnpack, ggml or none (default: of the config, ort)")
      .toggle(options.quantization.keep_bn, "keep-bn", "do not fold batch normalisation first");
  add_general_flags(set, options.general);
  return set;
}

/// Folds a network for a plan. Throws if formats cannot be chosen for it.
void check_plan(Network* network, const SensitivityOptions& options) {
  const AutoQuantizeOptions plan = plan_options(options);
  if (network == nullptr) return;
  // Formats are measured in the network that is deployed, which has no batch norms.
  if (!options.quantization.keep_bn && !network->folded()) network->fold();
  naming_flags([&] { check_auto_quantize(network->module(), network->input_shape(), plan); });
}

Plan plan_sensitivity(const SensitivityOptions& options, PlannedFiles& planned) {
  auto network = planned.network(options.checkpoint);
  // Data for a network of an earlier phase is only checked to be readable.
  const auto data = network ? prepare_sensitivity(*network, options)
                            : open_any_data(options.data.data, options.data.split, false, LabelType::numbers);
  const auto samples = some_samples(data, options.samples, 0);
  if (options.makes_plan()) check_plan(network ? &*network : nullptr, options);
  if (network && !options.makes_plan() && !planned.holds(options.checkpoint))
    check_calibrated(*network, "sensitivity");
  // A later phase may use the plan as --config. Its content is known after the measurement.
  for (const auto& file : {options.report, options.plan, options.output})
    if (file) planned.add(*file);
  Plan plan;
  plan.add(fmt::format("{} on {} samples of {}",
                       options.makes_plan() ? "choose a format for each layer" : "measure each layer",
                       samples->size(), options.data.data),
           [&options, network, samples](Output& output, ordered_json& result) {
             result = measure_sensitivity(options, network.value(), samples, output);
           });
  return plan;
}

}  // namespace

Command sensitivity_command() {
  return {"sensitivity", "print the loss from quantizing each layer, or plan a format for each",
          typed(sensitivity_flags, plan_sensitivity), true};
}

}  // namespace fq::cli
