#include "fakequant/train/sensitivity/sensitivity.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/flags/listed_words.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/quantization.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/tables/sensitivity_table.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/network/calibration.h"
#include "fakequant/network/detail/data_checks.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

bool asks_for_plan(const Flags& flags) {
  return flags.given("effective-bits") || flags.given("accuracy-budget");
}

DamageScore score_of(const Flags& flags, const std::string& standard) {
  const std::string name = flags.given("score") ? flags.choice("score", {"loss", "divergence"}) : standard;
  return name == "loss" ? DamageScore::loss : DamageScore::divergence;
}

AutoQuantizeOptions plan_options(const Flags& flags) {
  AutoQuantizeOptions options;
  if (flags.given("effective-bits"))
    options.constraint.effective_bits = flags.number("effective-bits", 0, kFloatWeightBits);
  if (flags.given("accuracy-budget"))
    options.constraint.accuracy_budget = flags.number("accuracy-budget", 0, 100) / 100;
  options.formats = listed_words(flags.text("formats"));
  options.config = read_base_quantization(flags).dump();
  options.calibration_samples = 0;  // all of those that were drawn
  options.score = score_of(flags, "divergence");
  options.ranks = run_ranks();
  return options;
}

void check_sensitivity_flags(const Network& network, const Flags& flags) {
  const std::string file = flags.text("checkpoint");
  for (const char* name : {"plan", "output", "formats", "config", "target", "keep-bn"})
    FQ_CHECK(asks_for_plan(flags) || !flags.given(name), "sensitivity",
             "--{} is for a plan: give --effective-bits or --accuracy-budget", name);
  FQ_CHECK(!asks_for_plan(flags) || !flags.given("report"), "sensitivity",
           "--report is for a calibrated network: a plan is written by --plan");
  FQ_CHECK(network.quantized() || asks_for_plan(flags), "sensitivity",
           "{} is not quantized: run fakequant calibrate first, or give --effective-bits or "
           "--accuracy-budget for a plan",
           file);
  FQ_CHECK(!network.quantized() || !asks_for_plan(flags), "sensitivity",
           "{} is quantized already: a plan begins with a float checkpoint", file);
}

/// What the network, fit to be measured, is measured on.
std::shared_ptr<const Dataset> prepare_sensitivity(Network& network, const Flags& flags) {
  check_not_compressed(network, "sensitivity", flags.text("checkpoint"));
  check_sensitivity_flags(network, flags);
  auto data = open_data_for(network, flags, flags.text("split"), Labels::if_there);
  FQ_CHECK(data->classes() > 0 || flags.text("score") != "loss", "sensitivity",
           "--score loss needs labels, and {} has none: give data with y, or --score divergence",
           flags.text("data"));
  check_classifies(network, "sensitivity");
  return data;
}

/// `network` is null where it is not known yet.
void check_plan(Network* network, const Flags& flags) {
  const AutoQuantizeOptions options = plan_options(flags);
  if (network == nullptr) return;
  if (!flags.on("keep-bn") && !network->folded()) network->fold();
  naming_flags([&] { check_auto_quantize(network->module(), network->input_shape(), options); });
}

void check_not_stopped() {
  if (stop_requested()) throw Interrupted("sensitivity", ": nothing was written");
}

ordered_json measure(Network& network, DataLoader& data, const Flags& flags, Output& output) {
  check_calibrated(network, "sensitivity");
  const auto report =
      sensitivity(network.module(), data, {.order = score_of(flags, "loss"), .ranks = run_ranks()});
  check_not_stopped();
  output.line(sensitivity_table(report));
  ordered_json result = report.to_json();
  if (flags.given("report") && is_first_rank()) write_file(flags.text("report"), json_text(result));
  return result;
}

ordered_json make_plan(Network& network, DataLoader& data, const Flags& flags, Output& output) {
  if (!flags.on("keep-bn") && !network.folded()) network.fold();
  const auto plan = naming_flags([&] { return auto_quantize(network, data, plan_options(flags)); });
  check_not_stopped();
  output.line(plan_table(plan));
  if (flags.given("plan") && is_first_rank()) plan.save(flags.text("plan"));
  if (flags.given("output") && is_first_rank()) network.save(flags.text("output"));
  return plan.to_json();
}

}  // namespace

FlagSet sensitivity_flags() {
  FlagSet set("sensitivity",
              "What quantizing each layer alone costs a calibrated network; or, of a float one, a plan: the "
              "format of each layer that costs least.",
              "CHECKPOINT --data FILE [--effective-bits BITS|--accuracy-budget PERCENT] [flags]");
  set.group("Files")
      .argument("checkpoint", "FILE", "a calibrated checkpoint; for a plan, a float one")
      .output("report", "FILE", "write the table of a calibrated network there (JSON)", kind::sensitivity)
      .output("plan", "FILE", "write the plan there (JSON), a --config of calibrate and qat", kind::plan)
      .output("output,o", "FILE", "write the network there, quantized and calibrated by the plan",
              kind::checkpoint);
  add_data_flags(set, "train");
  set.value("samples", "SAMPLES", "samples to calibrate and measure on", "512");
  set.group("Plan")
      .value("effective-bits", "BITS", "a weight may have on average")
      .value("accuracy-budget", "PERCENT", "points of accuracy that may be lost, with the fewest bits")
      .value("formats", "LIST", "presets to choose from, and none for layers that stay float",
             "w4a8,int8,none")
      .value("score", "NAME",
             "loss, which a table is sorted by, or divergence, whose sum a plan makes least (the defaults)")
      .value("config", "FILE", "target, scale, algorithm and rules for every format: a config without preset")
      .value("target", "NAME",
             "ort, tensorrt, ort_dynamic, xnnpack, ggml or none (default: of the config, ort)")
      .toggle("keep-bn", "do not fold batch normalisation first");
  add_general_flags(set);
  return set;
}

void check_sensitivity(const Flags& flags, PlannedFiles& planned) {
  (void)flags.integer("batch", 1, 1 << 20);
  const auto samples = flags.integer("samples", 1, std::int64_t{1} << 40);
  auto network = planned.network(flags.required("checkpoint"));
  const auto data =
      network ? prepare_sensitivity(*network, flags) : open_data(flags, flags.text("split"), 0, false);
  (void)some_samples(data, samples, 0);
  if (asks_for_plan(flags)) check_plan(network ? &*network : nullptr, flags);
  for (const char* file : {"report", "plan", "output"})
    if (flags.given(file)) planned.add(flags.text(file));
}

ordered_json measure_sensitivity(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  const auto batch = flags.integer("batch", 1, 1 << 20);
  const auto samples = flags.integer("samples", 1, std::int64_t{1} << 40);
  Network network = load_network(flags.required("checkpoint"));
  const auto data = prepare_sensitivity(network, flags);
  network.module().to(device_of(flags));
  DataLoader loader(some_samples(data, samples, 0), {.batch_size = batch, .shuffle = false});
  const Stopwatch watch;
  ordered_json result = asks_for_plan(flags) ? make_plan(network, loader, flags, output)
                                             : measure(network, loader, flags, output);
  output.line(fmt::format("measured in {}", duration(watch.seconds())));
  result["seconds"] = watch.seconds();
  return result;
}

}  // namespace fq::cli
