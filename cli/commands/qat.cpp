#include <fmt/format.h>

#include "fakequant/cli/calibration.h"
#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/fine_tuning/layer_formats.h"
#include "fakequant/cli/fine_tuning/low_rank.h"
#include "fakequant/cli/fine_tuning/teacher.h"
#include "fakequant/cli/fine_tuning/warnings.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/quantization.h"
#include "fakequant/cli/runs/folder_lock.h"
#include "fakequant/cli/runs/run_files.h"
#include "fakequant/cli/training.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/qat_training.h"

namespace fq::cli {
namespace {

constexpr double kMost = 1e9;

AmaxMode amax_mode(const Flags& flags) {
  const std::string name = flags.choice("amax", {"frozen", "running", "learned"});
  return name == "running" ? AmaxMode::running : name == "learned" ? AmaxMode::learned : AmaxMode::frozen;
}

AmaxGradient amax_gradient(const Flags& flags) {
  return flags.choice("amax-gradient", {"clip", "lsq"}) == "lsq" ? AmaxGradient::lsq : AmaxGradient::clip;
}

void read_ranges(TrainerOptions& options, const Flags& flags) {
  options.backward =
      flags.choice("backward", {"bf16", "fp32"}) == "fp32" ? BackwardType::fp32 : BackwardType::bf16;
  options.amax_momentum = flags.number("amax-momentum", 1e-9, 1);
  options.freeze_amax_after = flags.integer("freeze-amax-after", -1, kManySteps);
  options.quant_start = flags.integer("quant-start", 0, kManySteps);
  options.freeze_bn_after = flags.integer("freeze-bn-after", -1, kManySteps);
  options.reestimate_bn = flags.integer("reestimate-bn", 0, kManySteps);
}

/// What flags choose in place of the defaults of the format.
TrainingChoices read_choices(const Flags& flags) {
  TrainingChoices out;
  read_distillation(flags, out);
  if (flags.given("amax")) out.amax = amax_mode(flags);
  if (flags.given("amax-gradient")) out.amax_gradient = amax_gradient(flags);
  if (flags.given("weight-amax"))
    out.learn_weight_ranges = flags.choice("weight-amax", {"frozen", "learned"}) == "learned";
  if (flags.given("amax-lr")) out.amax_rate = flags.number("amax-lr", 1e-9, kMost);
  if (flags.given("lr")) out.learning_rate = flags.number("lr", 0, 1e38);
  return out;
}

/// Flags of ranges that are none of those that the run has.
void check_ranges(const TrainerOptions& options, const Flags& flags) {
  FQ_CHECK(
      !flags.given("amax-gradient") || options.amax == AmaxMode::learned || options.learn_weight_ranges,
      "qat",
      "--amax-gradient is of learned ranges, and none is: give --amax learned or --weight-amax learned, or "
      "leave it out");
}

void check_asks(const Run& run, const Flags& flags) {
  const bool asked = flags.given("preset") || flags.given("config") || chooses_formats(flags);
  FQ_CHECK(!run.network.quantized() || !asked, "qat", "{} is quantized already: leave out {}",
           flags.text("checkpoint"),
           chooses_formats(flags) ? "--preset and --effective-bits" : "--preset and --config");
  for (const char* flag : quantizing_flags())
    FQ_CHECK(!run.network.quantized() || !flags.given(flag), "qat",
             "{} is quantized already, and --{} is for when that is done: leave it out",
             flags.text("checkpoint"), flag);
  FQ_CHECK(run.network.quantized() || asked, "qat",
           "{} is not quantized: give --preset or --config, or run fakequant calibrate first",
           flags.text(flags.given("init") ? "init" : "checkpoint"));
}

TrainerOptions read_options(const Flags& flags) {
  TrainerOptions options = read_training(flags);
  options.validate_start = flags.number("val-fraction", 0, 0.9) > 0;
  (void)read_choices(flags);
  read_ranges(options, flags);
  options.low_rank = read_low_rank(flags);
  return options;
}

/// Loads the ranges of the run to resume, before the optimizer is made.
void restore(Network& network, const std::string& path) {
  const StateDict saved = load_checkpoint(path);
  check_same_network(network.identity(), saved, path);
  load_model_state(network.module(), saved, path);
}

/// The run that the flags ask for, not quantized yet; nothing where the network is not known yet.
std::optional<Run> prepare_qat(const Flags& flags, const TrainerOptions& options,
                               const PlannedFiles& planned) {
  auto [network, initialised] = starting_network(flags, "train", planned);
  if (network) check_not_compressed(*network, "qat", flags.text("checkpoint"));
  if (!network) {
    static_cast<void>(open_data(flags, "train"));
    return std::nullopt;
  }
  Run run{.network = std::move(*network),
          .data = nullptr,
          .out = options.out,
          .resume = resuming(flags),
          .initialised = std::move(initialised)};
  take_task(run.network, flags);
  run.data = open_data_for(run.network, flags, "train");
  check_task(run.network, *run.data, "qat");
  check_asks(run, flags);
  return run;
}

}  // namespace

FlagSet qat_flags() {
  FlagSet set(
      "qat",
      "Fine-tunes a network with its quantizers on. A float checkpoint is quantized and calibrated first.",
      "CHECKPOINT|--model FILE|NAME --init FILE --data FILE -o FILE [--preset NAME] [flags]");
  set.need({"amax-momentum", "freeze-amax-after"}, "amax", {"running"});
  set.group("Files")
      .argument("checkpoint", "FILE", "a calibrated checkpoint, or a float one and --preset")
      .output("output,o", "FILE|RUN/", output_help, "", training_files);
  add_model_flags(set);
  add_init_flags(set, false);
  add_data_flags(set, nullptr);
  add_task_flags(set);
  add_training_flags(set, "10", nullptr);
  add_range_flags(set);
  add_low_rank_flags(set);
  add_teacher_flags(set, true);
  add_quantization_flags(set);
  add_layer_format_flags(set);
  add_calibration_flags(set);
  add_mask_flag(set);
  add_general_flags(set);
  return set;
}

void check_qat(const Flags& flags, PlannedFiles& planned) {
  check_teacher_flags(flags, planned);
  check_layer_formats(flags);
  TrainerOptions options = read_options(flags);
  auto run = prepare_qat(flags, options, planned);
  const bool chooses = run && chooses_formats(flags);
  if (chooses) check_formats_for(run->network, flags, read_quantization(flags));
  const bool from_file = run && run->network.quantized() && !planned.holds(flags.text("checkpoint"));
  const bool known =
      run && (run->network.quantized() || plan_quantization(run->network, flags, planned, true));
  plan_outputs(known && !chooses ? &run->network : nullptr, flags, planned);
  if (run) check_teacher(flags, run->network, planned);
  if (run) check_batches(*run, flags);
  if (run) (void)read_mask(run->network, flags);
  if (!known || chooses) return;
  if (!run->resume && (from_file || flags.text("method") == "none")) check_calibrated(run->network, "qat");
  complete_training(options, run->network.identity().config(), read_choices(flags), false,
                    is_text(*run->data));
  check_ranges(options, flags);
  check_training(*run, flags, std::move(options));
}

nlohmann::ordered_json qat(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  check_teacher_flags(flags, {});
  TrainerOptions options = read_options(flags);
  check_layer_formats(flags);
  Quantization quantization = read_quantization(flags);
  const auto lock = lock_run(flags);
  Run run = prepare_qat(flags, options, {}).value();
  (void)read_mask(run.network, flags);
  open_run_folder(flags);
  if (!run.initialised.empty()) output.line(run.initialised);
  if (chooses_formats(flags))
    quantization = choose_formats(run.network, flags, quantization, run.data, output);
  const bool calibrates = !run.network.quantized();
  if (calibrates) quantize_and_calibrate(run.network, flags, quantization, run.data, output, !run.resume);
  options.distillation = read_teacher(flags, run.network);
  if (!run.resume) warn_unless_exportable(run.network, "qat");
  QatOptions qat{.training = std::move(options),
                 .choices = read_choices(flags),
                 .self_distillation = self_distillation(flags),
                 .measure = true};
  if (run.resume) qat.restore = [&](Network& network) { restore(network, run.out); };
  QatPlan plan = fq::prepare_qat(run.network, run.data, qat);
  options = std::move(plan.training);
  check_ranges(options, flags);
  options.mask = read_mask(run.network, flags);
  FQ_CHECK(!options.mask || calibrates || options.amax == AmaxMode::running, "qat",
           "--mask is for calibration and --amax running: leave it out for {}", flags.text("checkpoint"));
  output.line(describe_training(options, plan.self_distillation));
  auto result = train_network(run, std::move(options), flags, output);
  warn_of_quantizers(run.network, run.data, "qat");
  if (const auto after = sample_accuracy(run.network, run.data); plan.before && after) {
    result["training_images"] = {{"count", after->images},
                                 {"float", 100 * plan.before->in_float},
                                 {"before", 100 * plan.before->quantized},
                                 {"after", 100 * after->quantized}};
    if (!run.resume) warn_of_loss(*plan.before, *after, "qat");
  }
  return result;
}

}  // namespace fq::cli
