#include <fmt/format.h>

#include "fakequant/cli/calibration.h"
#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/flags/removed.h"
#include "fakequant/cli/layer_formats.h"
#include "fakequant/cli/quantization.h"
#include "fakequant/cli/runs/run_files.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/training.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/qat_defaults.h"

namespace fq::cli {
namespace {

constexpr double kMostRate = 1e9;
constexpr std::int64_t kMostRank = 1 << 20;
constexpr double kLeastAlpha = 1e-9, kMostAlpha = 1e9;

struct AdapterOptions {
  std::optional<std::int64_t> rank = {};
  std::optional<double> alpha = {};
  std::optional<std::string> layers = {};
};

struct QatFlags {
  TrainingOptions training = {.command = "qat", .usual_epochs = 10, .teacher = {.command = "qat"}};
  QuantizationOptions quantization = {.command = "qat"};
  CalibrationOptions calibration;
  LayerFormatOptions formats;
  /// Values that override the defaults of the format.
  std::optional<AmaxMode> amax = {};
  std::optional<AmaxGradient> amax_gradient = {};
  std::optional<bool> learn_weight_ranges = {};
  std::optional<double> amax_rate = {};
  /// See TrainerOptions.
  double amax_momentum = 0.01;
  std::int64_t freeze_amax_after = -1, quant_start = 0, freeze_bn_after = -1, reestimate_bn = 0;
  BackwardType backward = BackwardType::bf16;
  AdapterOptions adapters;
};

/// A run, and the quantization of its network.
struct QatRun {
  Run run;
  std::optional<Quantization> quantization = {};  ///< for a float network
  bool places_later = false;                      ///< choose formats before placing quantizers
  QatOptions options = {};
};

/// Returns whether the network is its own teacher (QatOptions::self_distillation); empty if no option
/// decides.
std::optional<bool> self_distillation(const TrainingOptions& training) {
  if (training.teacher.teacher) return training.teacher.is_self();
  // Flags that change samples, labels or loss, or load other weights, switch the default teacher off.
  const bool decides = !training.sampling.augment.empty() || training.label_smoothing ||
                       training.model.init || training.task.loss;
  return decides ? std::optional(false) : std::nullopt;
}

TrainingChoices choices(const QatFlags& flags) {
  TrainingChoices out;
  take_distillation(out, flags.training.teacher);
  out.amax = flags.amax;
  out.amax_gradient = flags.amax_gradient;
  out.learn_weight_ranges = flags.learn_weight_ranges;
  out.amax_rate = flags.amax_rate;
  out.learning_rate = flags.training.optimization.lr;
  return out;
}

LowRankOptions low_rank_options(const AdapterOptions& adapters) {
  LowRankOptions out{.rank = adapters.rank.value_or(0)};
  if (adapters.alpha) out.alpha = *adapters.alpha;
  if (adapters.layers) out.layers = *adapters.layers;
  return out;
}

TrainerOptions qat_trainer_options(const QatFlags& flags) {
  TrainerOptions out = trainer_options(flags.training);
  // The start of a fine-tuning may be better than every epoch, and is then the best checkpoint.
  out.validation.validate_start = flags.training.val_fraction > 0;
  out.execution.backward = flags.backward;
  out.ranges.amax_momentum = flags.amax_momentum;
  out.ranges.freeze_amax_after = flags.freeze_amax_after;
  out.ranges.quant_start = flags.quant_start;
  out.batch_norm.freeze_bn_after = flags.freeze_bn_after;
  out.batch_norm.reestimate_bn = flags.reestimate_bn;
  out.low_rank = low_rank_options(flags.adapters);
  return out;
}

/// Throws ArgumentError for range options that do not apply to the run.
void check_ranges(const TrainerOptions& trainer, const QatFlags& flags) {
  FQ_CHECK(
      !flags.amax_gradient || trainer.ranges.amax == AmaxMode::learned || trainer.ranges.learn_weight_ranges,
      "qat",
      "--set amax_gradient requires learned ranges: use --amax learned or --set learn_weight_ranges=true, "
      "or leave it out");
}

/// Throws ArgumentError for quantization options with a quantized network, and for a float network without a
/// format.
void check_formats(const QatRun& qat, const QatFlags& flags) {
  const QuantizationOptions& options = flags.quantization;
  const bool chooses = flags.formats.effective_bits.has_value();
  const bool has_format = options.preset || options.config || chooses;
  const bool quantized = qat.run.network.quantized();
  const std::string& checkpoint = flags.training.checkpoint;
  FQ_CHECK(quantized || has_format, "qat",
           "{} is not quantized: use --preset or --config, or run fakequant calibrate first",
           flags.training.model.init.value_or(checkpoint));
  if (!quantized) return;
  FQ_CHECK(!options.preset && !options.config && !chooses, "qat", "{} is already quantized: leave out {}",
           checkpoint, chooses ? "--preset and --effective-bits" : "--preset and --config");
  // Flags of quantization and calibration have no effect on a quantized network, which is an error rather
  // than silence.
  std::string detail = options.first_detail();
  if (flags.calibration.percentile) detail = flag_text("qat", "percentile");
  if (flags.calibration.samples) detail = "--samples";
  FQ_CHECK(detail.empty(), "qat", "{} is already quantized, and {} is for a float checkpoint: leave it out",
           checkpoint, detail);
}

/// Loads the ranges of the run to resume, before the optimizer is made.
void restore(Network& network, const std::string& path) {
  const StateDict saved = load_checkpoint(path);
  check_same_network(network.identity(), saved, path);
  load_model_state(network.module(), saved, path);
}

/// Loads the network and its data. Returns nothing if the network is not known yet.
std::optional<QatRun> load_run(const QatFlags& flags, const PlannedFiles& planned) {
  const TrainingOptions& training = flags.training;
  auto [network, initialised] = starting_network(training.checkpoint, training.model, training.task,
                                                 training.data, "train", planned, "qat");
  if (!network) {
    // An earlier phase writes the checkpoint. The data can be checked now, the network when the phase runs.
    static_cast<void>(open_any_data(training.data, "train", true, parse_task(training.task, "qat").labels()));
    return std::nullopt;
  }
  check_not_compressed(*network, "qat", training.checkpoint);
  QatRun out{.run = {.network = std::move(*network),
                     .data = nullptr,
                     .out = output_checkpoint(training),
                     .resume = resuming(training),
                     .initialised = std::move(initialised)}};
  Run& run = out.run;
  take_task(run.network, training.task, "qat");
  run.data = open_network_data(run.network, training.data, "train", Labels::needed, "qat");
  check_task(run.network, *run.data, "qat");
  check_formats(out, flags);
  return out;
}

/// Places quantizers, unless --config does not exist yet or formats are chosen first.
void place_planned(QatRun& qat, const QatFlags& flags, const PlannedFiles& planned) {
  const QuantizationOptions& options = flags.quantization;
  // The choice of formats runs the network on data, so it is a step of the run and not part of the plan.
  qat.places_later = flags.formats.effective_bits || (options.config && planned.holds(*options.config));
  if (qat.run.network.quantized()) return;
  if (options.config && planned.holds(*options.config)) return;
  qat.quantization = read_quantization(options, flags.formats.effective_bits.has_value());
  if (flags.formats.effective_bits)
    return check_plannable(qat.run.network, flags.formats, options, *qat.quantization);
  // A resumed run has the ranges of its checkpoint. It does not calibrate, so flags of calibration are not
  // checked.
  const std::optional<bool> images = !options.skips_calibration();
  place_quantizers(qat.run.network, options, flags.calibration, *qat.quantization,
                   qat.run.resume ? std::nullopt : images);
}

void check_mask(const QatRun& qat, const QatFlags& flags, const TrainerOptions& trainer) {
  FQ_CHECK(!trainer.ranges.mask || qat.quantization || trainer.ranges.amax == AmaxMode::running, "qat",
           "--set mask is for calibration and --amax running: leave it out for {}",
           flags.training.checkpoint);
}

/// Throws the errors of the run before its first step.
void check_run(const QatRun& qat, const QatFlags& flags, bool from_file) {
  const Run& run = qat.run;
  // A network that this run quantizes gets its ranges later, unless --method none skips the calibration.
  if (!run.resume && (from_file || flags.quantization.skips_calibration()))
    check_calibrated(run.network, "qat");
  // A copy: the options are completed once more in `prepare_qat`, when the teacher is known. Here they only
  // serve for checks.
  TrainerOptions trainer = qat.options.training;
  complete_training(trainer, run.network.identity().config(), choices(flags), false, is_text(*run.data));
  check_ranges(trainer, flags);
  trainer.ranges.mask = read_mask(run.network, flags.calibration);
  check_mask(qat, flags, trainer);
  check_training(run, flags.training, std::move(trainer));
}

// Checked again, because the output may have been written since the plan was made.
void begin(QatRun& qat, const QatFlags& flags, Output& output) {
  qat.run.resume = resuming(flags.training);
  open_run_folder(flags.training);
  if (!qat.run.initialised.empty()) output.line(qat.run.initialised);
}

/// Chooses the formats if requested, and calibrates a float network.
void quantize_run(QatRun& qat, const QatFlags& flags, Output& output) {
  Run& run = qat.run;
  const QuantizationOptions& options = flags.quantization;
  // Empty for a checkpoint that is quantized already.
  if (!qat.quantization) return;
  if (qat.places_later) {
    const auto samples = some_samples(run.data, flags.calibration.sample_count(), 0);
    qat.quantization = choose_formats(run.network, flags.formats, options, *qat.quantization, samples,
                                      flags.training.batch, output);
  }
  output.line(quantization_text(options, *qat.quantization));
  const std::optional<bool> images = !options.skips_calibration();
  if (qat.places_later)
    place_quantizers(run.network, options, flags.calibration, *qat.quantization,
                     run.resume ? std::nullopt : images);
  if (run.resume) return;
  const LoaderOptions batches{.batch_size = flags.training.batch,
                              .shuffle = false,
                              .device = chosen_device(flags.training.general, "qat")};
  (void)choose_ranges(run.network, options, flags.calibration, batches, std::nullopt, run.data, output);
}

nlohmann::ordered_json train_quantized(QatRun& qat, const QatFlags& flags, Output& output) {
  Run& run = qat.run;
  if (!run.resume) warn_unless_exportable(run.network, "qat");
  // `prepare_qat` calls it after the teacher was copied from the network of the start.
  if (run.resume) qat.options.restore = [&](Network& network) { restore(network, run.out); };
  QatPlan plan = fq::prepare_qat(run.network, run.data, qat.options);
  TrainerOptions trainer = std::move(plan.training);
  check_ranges(trainer, flags);
  trainer.ranges.mask = read_mask(run.network, flags.calibration);
  check_mask(qat, flags, trainer);
  output.line(describe_training(trainer, plan.self_distillation));
  auto result = train_network(run, std::move(trainer), flags.training, output);
  warn_of_quantizers(run.network, run.data, "qat");
  // Both accuracies are on the same training samples, so their difference is the effect of the training.
  if (const auto after = sample_accuracy(run.network, run.data); plan.before && after) {
    result["training_images"] = {{"count", after->images},
                                 {"float", 100 * plan.before->in_float},
                                 {"before", 100 * plan.before->quantized},
                                 {"after", 100 * after->quantized}};
    if (!run.resume) warn_of_loss(*plan.before, *after, "qat");
  }
  return result;
}

void add_range_settings(FlagSet& set, QatFlags& flags) {
  set.need({"amax_momentum", "freeze_amax_after"}, "amax", {"running"})
      .need({"low_rank.alpha", "low_rank.layers"}, "lora");
  set.choice(flags.learn_weight_ranges, "learn_weight_ranges", "true|false",
             NamedChoices<bool>{{"true", true}, {"false", false}},
             "ranges of weights are trained (default: as --amax)")
      .choice(flags.amax_gradient, "amax_gradient", "NAME",
              NamedChoices<AmaxGradient>{{"clip", AmaxGradient::clip}, {"lsq", AmaxGradient::lsq}},
              "of learned ranges: clip (of their bounds) or lsq (of the step) (default: lsq with 4 bits and "
              "fewer, else clip)")
      .value(flags.amax_rate, "amax_rate", "FACTOR", {1e-9, kMostRate},
             "learning rate of learned ranges relative to the weights (default: 3 with activations of 2 "
             "bits, 0.1 with w3a8, w2a8 and int2_blockwise, else 1)")
      .value(flags.amax_momentum, "amax_momentum", "SHARE", {1e-9, 1},
             "share of the range of a batch in a running range")
      .value(flags.freeze_amax_after, "freeze_amax_after", "STEPS", {-1, kManySteps},
             "steps after which running ranges are fixed; -1: never")
      .choice(flags.backward, "backward", "NAME",
              NamedChoices<BackwardType>{{"bf16", BackwardType::bf16}, {"fp32", BackwardType::fp32}},
              "type of the backward products of quantized layers: bf16 (rounded once) or fp32")
      .value(flags.quant_start, "quant_start", "STEPS", {0, kManySteps},
             "steps in float before quantizers start")
      .value(flags.freeze_bn_after, "freeze_bn_after", "STEPS", {-1, kManySteps},
             "steps after which batch norm uses its running statistics; -1: never")
      .value(
          flags.reestimate_bn, "reestimate_bn", "BATCHES", {0, kManySteps},
          "training batches for new statistics of live batch norms after each epoch; 0: running statistics")
      .value(flags.adapters.alpha, "low_rank.alpha", "NUMBER", {kLeastAlpha, kMostAlpha},
             "the product of the adapters counts NUMBER / RANK times (default: twice the rank)")
      .value(flags.adapters.layers, "low_rank.layers", "PATTERN",
             "layers with adapters, for example block?_fc* (default: all quantized)");
}

void add_quantization_options(FlagSet& set, QatFlags& flags) {
  set.group("Quantization");
  add_config_flags(set, flags.quantization);
  add_layer_format_flags(set, flags.formats);
  add_method_flag(set, flags.quantization);
  add_samples_flag(set, flags.calibration);
  set.choice(
         flags.amax, "amax", "NAME",
         NamedChoices<AmaxMode>{
             {"frozen", AmaxMode::frozen}, {"running", AmaxMode::running}, {"learned", AmaxMode::learned}},
         "ranges of activations: frozen (as calibrated), running (follow the data) or learned (trained) "
         "(default: learned with 4 bits and fewer, else frozen)")
      .value(flags.adapters.rank, "lora", "RANK", {1, kMostRank},
             "rank of low-rank adapters, which alone are trained (default: train all "
             "parameters)");
}

FlagSet qat_flags(QatFlags& flags) {
  TrainingOptions& training = flags.training;
  FlagSet set(
      "qat",
      "Fine-tunes a network with its quantizers on. A float checkpoint is quantized and calibrated first.",
      "CHECKPOINT|--model FILE|NAME --init FILE --data FILE -o FILE [--preset NAME] [flags]");
  set.group("Main flags")
      .argument(training.checkpoint, "checkpoint", "FILE",
                "a calibrated checkpoint, or a float one and --preset");
  add_preset_flag(set, flags.quantization);
  add_training_output(set, training);
  add_main_training_flags(set, training);
  add_quantization_options(set, flags);
  set.group("Network");
  add_model_flag(set, training.model);
  add_init_flags(set, training.model, false);
  add_training_flags(set, training);
  add_run_flags(set, training);
  add_general_flags(set, training.general);
  add_training_settings(set, training);
  add_range_settings(set, flags);
  add_format_flags(set, flags.quantization);
  add_weight_flags(set, flags.quantization);
  add_percentile_flag(set, flags.calibration);
  add_mask_flag(set, flags.calibration);
  return set;
}

/// A run of a plan, shared by its steps. The lock of its run directory is held until the last step.
/// Steps are copyable functions, so they share the run by pointer. Each step continues with the result of the
/// one before.
struct SharedRun {
  std::optional<QatRun> qat;
  std::unique_ptr<FolderLock> lock;
};

void add_steps(Plan& plan, const QatFlags& flags, const std::shared_ptr<SharedRun>& shared) {
  const TrainingOptions& training = flags.training;
  const std::string start = training.model.model.value_or(training.checkpoint);
  plan.add(fmt::format("start from {}", start), [&flags, shared](Output& output, auto&) {
    shared->lock = lock_run(run_target(flags.training));
    begin(shared->qat.value(), flags, output);
  });
  const bool quantizes = flags.quantization.preset || flags.quantization.config;
  // Without a step for a network that the plan knows to be quantized.
  if (quantizes && !(shared->qat && shared->qat->run.network.quantized() && !shared->qat->quantization)) {
    std::string text = quantization_step(flags.quantization);
    if (flags.formats.effective_bits)
      text = fmt::format("choose a format for each layer, {} bits a weight", *flags.formats.effective_bits);
    if (!flags.quantization.skips_calibration())
      text += fmt::format(", calibrate on {} samples", flags.calibration.sample_count());
    plan.add(text, [&flags, shared](Output& output, auto&) { quantize_run(*shared->qat, flags, output); });
  }
  plan.add(training_step(training), [&flags, shared](Output& output, nlohmann::ordered_json& result) {
    result = train_quantized(*shared->qat, flags, output);
    shared->lock.reset();
  });
}

Plan plan_qat(const QatFlags& flags, PlannedFiles& planned) {
  const TrainingOptions& training = flags.training;
  if (flags.quantization.config) planned.check_there("qat", "config", *flags.quantization.config);
  check_teacher_options(training.teacher, planned);
  check_layer_formats(flags.formats, flags.quantization);
  TrainerOptions trainer = qat_trainer_options(flags);
  const auto shared = std::make_shared<SharedRun>();
  auto& qat = shared->qat = load_run(flags, planned);
  if (qat) {
    const bool from_file = qat->run.network.quantized() && !planned.holds(training.checkpoint);
    qat->options = {.training = std::move(trainer),
                    .choices = choices(flags),
                    .self_distillation = self_distillation(training),
                    .measure = true};
    qat->options.training.objective.distillation = load_teacher(training.teacher, qat->run.network, planned);
    check_batches(qat->run, training);
    (void)read_mask(qat->run.network, flags.calibration);
    place_planned(*qat, flags, planned);
    // Quantizers are placed unless formats are chosen later. Without them the Trainer cannot check the run.
    if (qat->run.network.quantized()) check_run(*qat, flags, from_file);
  }
  // Later phases may read the network only if its quantizers are known.
  const bool known = qat && qat->run.network.quantized();
  plan_outputs(known ? &qat->run.network : nullptr, training, planned);
  Plan plan;
  add_steps(plan, flags, shared);
  return plan;
}

}  // namespace

Command qat_command() { return {"qat", "fine-tune a quantized network", typed(qat_flags, plan_qat), true}; }

}  // namespace fq::cli
