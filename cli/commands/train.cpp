#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/runs/run_files.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/training.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq::cli {
namespace {

struct TrainOptions {
  TrainingOptions training = {
      .command = "train", .usual_epochs = 40, .usual_rate = 0.004, .teacher = {.command = "train"}};
  std::optional<std::string> config = {};  ///< file of settings
  bool fold_bn = false;
};

// Empty for a checkpoint that an earlier phase writes.
std::optional<Network> starting_checkpoint(const TrainingOptions& options, const PlannedFiles& planned) {
  FQ_CHECK(!options.model.model, "train", "--model and --checkpoint: use one");
  FQ_CHECK(!options.model.init, "train", "--init and --checkpoint: use one, --init with --model");
  auto network = planned.network(options.checkpoint);
  if (!network) return network;
  check_not_compressed(*network, "train", options.checkpoint);
  FQ_CHECK(!network->quantized(), "train", "{} is quantized: use fakequant qat", options.checkpoint);
  return network;
}

/// Returns a network of --model for the data, with initial weights.
Run new_run(const TrainingOptions& options) {
  check_given(options.model.model.value_or(""), "model", "train");
  auto data = open_any_data(options.data, "train", true, parse_task(options.task, "train").labels());
  Run run{.network = make_network(options.model, options.task, *data, options.data,
                                  std::uint64_t(options.seed), "train"),
          .data = std::move(data)};
  run.initialised = init_weights(run.network, options.model);
  return run;
}

/// Returns the run of the options; empty if the network is not known yet.
std::optional<Run> prepare(const TrainingOptions& options, const PlannedFiles& planned) {
  std::optional<Run> run;
  if (options.checkpoint.empty()) {
    run = new_run(options);
  } else {
    auto network = starting_checkpoint(options, planned);
    if (!network) return std::nullopt;
    run = Run{.network = std::move(*network)};
    take_task(run->network, options.task, "train");
    run->data = open_network_data(run->network, options.data, "train", Labels::needed, "train");
  }
  run->out = output_checkpoint(options);
  run->resume = resuming(options);
  check_task(run->network, *run->data, "train");
  return run;
}

/// Returns true if a finished run with --fold-bn wrote `out`. Such a file has no training state and cannot be
/// resumed.
bool finished_and_folded(const Run& run) {
  const StateDict state = load_checkpoint(run.out);
  Identity wanted = run.network.identity();
  // Folding is the only allowed difference between the network of the run and the file.
  wanted.folded = load_identity(state, run.out).folded;
  check_same_network(wanted, state, run.out);
  return wanted.folded && !has_training_state(state);
}

void fold_trained(const std::string& path, Output& output, nlohmann::ordered_json& result) {
  Network trained = load_network(path);
  const auto folded = trained.fold();
  result["folded"] = folded;
  trained.save(path);
  output.line(fmt::format("{} batch norms folded", folded));
}

void train(const TrainOptions& options, Run run, TrainerOptions trainer, Output& output,
           nlohmann::ordered_json& result) {
  const TrainingOptions& training = options.training;
  const auto lock = lock_run(run_target(training));
  run.resume = resuming(training);
  // Repeating the command of a finished run changes nothing and succeeds.
  if (run.resume && finished_and_folded(run)) {
    output.line(run.out + " is finished");
    result = {{"output", run.out}};
    return;
  }
  open_run_folder(training);
  if (!run.initialised.empty()) output.line(run.initialised);
  result = train_network(run, std::move(trainer), training, output);
  // One rank writes the file. The others have the same values.
  if (options.fold_bn && is_first_rank()) fold_trained(run.out, output, result);
}

FlagSet train_flags(TrainOptions& options) {
  TrainingOptions& training = options.training;
  FlagSet set("train", "Trains a network in float on the group train of a data set.",
              "--model FILE|NAME --data FILE -o FILE [flags]");
  set.group("Main flags");
  add_model_flag(set, training.model);
  add_training_output(set, training);
  add_main_training_flags(set, training);
  set.group("Network").value(training.checkpoint, "checkpoint", "FILE",
                             "start from this network and its weights instead of --model");
  add_init_flags(set, training.model, true);
  set.toggle(options.fold_bn, "fold-bn", "fold batch normalisation at the end");
  add_training_flags(set, training);
  add_run_flags(set, training);
  set.config_file(options.config, "settings as JSON: {\"training\": {\"clip_norm\": 1}}");
  add_general_flags(set, training.general);
  add_training_settings(set, training);
  return set;
}

/// Adds the output files of the run. A run that folds batch norm writes another network.
void plan_files(const Run* run, const TrainOptions& options, PlannedFiles& planned) {
  plan_outputs(run != nullptr ? &run->network : nullptr, options.training, planned);
  if (run == nullptr || !options.fold_bn) return;
  // A network of the same structure: only the identity after folding is needed, not the values.
  Network folded = Network::create(run->network.identity());
  folded.fold();
  planned.add(run->out, folded);
}

Plan plan_train(const TrainOptions& options, PlannedFiles& planned) {
  const TrainingOptions& training = options.training;
  if (options.config) planned.check_there("train", "config", *options.config);
  TrainerOptions trainer = trainer_options(training);
  check_teacher_options(training.teacher, planned);
  const auto run = prepare(training, planned);
  if (run) {
    trainer.objective.distillation = load_teacher(training.teacher, run->network, planned);
    check_training(*run, training, trainer);
  }
  plan_files(run ? &*run : nullptr, options, planned);
  Plan plan;
  plan.add(training_step(training) + (options.fold_bn ? ", then fold batch normalisation" : ""),
           [&options, run, trainer](Output& output, nlohmann::ordered_json& result) {
             train(options, run.value(), trainer, output, result);
           });
  return plan;
}

}  // namespace

Command train_command() {
  return {"train", "train a network in float", typed(train_flags, plan_train), true};
}

}  // namespace fq::cli
