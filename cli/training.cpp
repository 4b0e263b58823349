#include "fakequant/cli/training.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "fakequant/cli/augmentation.h"
#include "fakequant/cli/command.h"
#include "fakequant/cli/commands/profile.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/command_files.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/network_tokenizer.h"
#include "fakequant/cli/optimization.h"
#include "fakequant/cli/runs/run_config.h"
#include "fakequant/cli/runs/run_files.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/runs/run_recorder.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/tables/training_report.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/log.h"
#include "fakequant/train/data/subset.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/detail/run_inputs.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::cli {
namespace {

constexpr double kMostNumber = 1e9;
constexpr std::uint64_t kSplitSeed = 0;  // the same images are held out for every --seed

struct Loaders {
  std::shared_ptr<DataLoader> training, validation;
};

/// Returns the number of samples per gradient.
std::int64_t images_at_once(const TrainingOptions& options) {
  return options.micro_batch == 0 ? options.batch : options.micro_batch;
}

/// Returns the number of gradients per step.
/// Both flags divide a step into several gradients. Their combination has no meaning.
std::int64_t batches_a_step(const TrainingOptions& options) {
  FQ_CHECK(options.accumulation == 1 || options.micro_batch == 0, options.command,
           "--set accumulation and --micro-batch: use one, a larger --batch with --micro-batch");
  return options.accumulation * naming_flags([&] {
           return micro_batches(options.batch, options.micro_batch, launched().ranks, options.command);
         });
}

/// Limits the batch to the size of the data. Parts of --micro-batch keep their size.
LoaderOptions within(LoaderOptions loader, const Dataset& data, const TrainingOptions& options) {
  // A part of a batch must have its size, because sums over parts define the result for any number of ranks.
  if (options.micro_batch == 0) loader.batch_size = std::min(loader.batch_size, data.size());
  return loader;
}

void print_small_data(const DataLoader& training, const TrainingOptions& options, Output& output) {
  if (const std::int64_t batch = training.options().batch_size; batch < images_at_once(options))
    output.line(fmt::format("{} {} to train on, fewer than --batch {}: a batch is all of them", batch,
                            sample_noun(training.data()), images_at_once(options)));
}

// `turn` is the number of batches in a step. Each rank makes its batches of every turn.
Loaders make_loaders(const Run& run, const TrainingOptions& options, const Communicator* ranks,
                     std::int64_t turn) {
  LoaderOptions loader;
  loader.batch_size = images_at_once(options);
  loader.drop_last = options.drop_last;
  if (ranks != nullptr) loader = share_of_rank(loader, *ranks, turn);
  loader.seed = std::uint64_t(options.seed);
  take_augmentation(loader, options.sampling, run.network.task(), *run.data, options.command);
  loader.device = chosen_device(options.general, options.command);
  // Without a share for validation there is no second loader.
  if (options.val_fraction == 0)
    return {std::make_shared<DataLoader>(run.data, within(loader, *run.data, options)), nullptr};
  const auto [rest, validation] = hold_out(run.data, options.val_fraction, kSplitSeed);
  return {std::make_shared<DataLoader>(rest, within(loader, *rest, options)),
          std::make_shared<DataLoader>(
              validation,
              // Validation has no augmentation and no order of its own.
              share_of_rank({.batch_size = loader.batch_size, .shuffle = false, .device = loader.device},
                            *run_ranks()))};
}

Shape batch_shape(const Run& run, const Loaders& loaders) {
  Shape shape = run.network.input_shape();
  shape[0] = loaders.training->options().batch_size;
  return shape;
}

/// Makes the loaders, and completes the Trainer options from network and data.
Loaders complete(const Run& run, const TrainingOptions& options, TrainerOptions& trainer) {
  Loaders loaders = naming_flags([&] {
    return make_loaders(run, options, trainer.distributed.ranks.get(), trainer.update.accumulation);
  });
  complete_training(trainer, run.network, *run.data);
  trainer.objective.metric_options = token_metric_options(run.network);
  const std::int64_t batches = loaders.training->batches_per_epoch();
  // Here the steps of an epoch are known. The last step of an epoch may have fewer batches.
  trainer.schedule = schedule_options(
      options.optimization, (batches + trainer.update.accumulation - 1) / trainer.update.accumulation,
      options.command);
  return loaders;
}

/// Returns null without a run directory, and on ranks other than the first.
std::unique_ptr<RunRecorder> make_recorder(const Run& run, const TrainingOptions& options,
                                           TrainingReport& report) {
  const auto folder = run_folder(options.output);
  if (!folder || !is_first_rank()) return nullptr;
  RecordedRun recorded{.run = &run, .batch = images_at_once(options)};
  const double fraction = options.val_fraction;
  // A split needs two samples.
  if (report.has_accuracy() && run.data->size() > 1) {
    recorded.of = fraction > 0 ? "validation" : "training";
    // Rows of the validation split: the same seed and fraction give the same split as `hold_out`. Without
    // one, rows of the training data.
    recorded.rows = some_held_out(run.data->size(), fraction > 0 ? fraction : 0.5, kSplitSeed, kMostExamined);
  }
  return std::make_unique<RunRecorder>(*folder, options, std::move(recorded), report);
}

void check_validation(const TrainingOptions& options, const TrainerOptions& trainer) {
  FQ_CHECK(trainer.schedule.kind != "plateau" || options.val_fraction > 0, options.command,
           "--schedule plateau needs samples to validate on: use --val-fraction too, for example 0.1");
  FQ_CHECK(trainer.validation.patience == 0 || options.val_fraction > 0, options.command,
           "--set patience={} needs samples to validate on: use --val-fraction too, for example 0.1",
           trainer.validation.patience);
}

/// Sets the options for several processes.
void take_ranks(TrainerOptions& trainer, const TrainingOptions& options) {
  // Only parts of a fixed size give the bits of one process. Without --micro-batch, `micro_batches` rejects
  // several processes.
  trainer.distributed.ranks = options.micro_batch == 0 ? nullptr : started_ranks(options.rank_timeout);
  trainer.distributed.reduction = options.reduction;
  trainer.distributed.shard_optimizer = options.shard_optimizer;
  FQ_CHECK(trainer.distributed.reduction == Reduction::exact || trainer.distributed.ranks, options.command,
           "--set reduction={} is for several processes: use --micro-batch too",
           trainer.distributed.reduction == Reduction::fp32 ? "fp32" : "bf16");
  FQ_CHECK(!trainer.distributed.shard_optimizer || trainer.distributed.ranks, options.command,
           "--set shard_optimizer is for several processes: use --micro-batch too");
}

}  // namespace

namespace {

/// Returns the files of --output: the checkpoint and, with --val-fraction, the checkpoint of the best epoch.
/// For a device (/dev/null), returns only the former. Called before the plan, so that errors about the folder
/// come first.
std::vector<WrittenFile> training_files(const TrainingOptions& options) {
  if (options.output.empty()) return {};
  check_run_settings(options);
  check_run_folder(run_target(options));
  const std::string out = output_checkpoint(options);
  const bool in_folder = run_folder(options.output).has_value();
  std::vector<WrittenFile> files{{out, kind::checkpoint, in_folder, options.resume ? "checkpoint" : ""}};
  if (options.val_fraction > 0 && allows_sibling_files(out))
    files.push_back({best_checkpoint_path(out), kind::checkpoint});
  return files;
}

}  // namespace

void add_training_output(FlagSet& set, TrainingOptions& options) {
  set.output(options.output, "output,o", "FILE|RUN/",
             "checkpoint, written whole after every epoch; of a folder, RUN/, a run directory: checkpoints, "
             "log, numbers and a page to look at",
             [&options] { return training_files(options); });
}

void add_main_training_flags(FlagSet& set, TrainingOptions& options) {
  set.value(options.data, "data,d", "FILE", "HDF5 data set; its group train is read")
      .required()
      .value(options.epochs, "epochs,e", "EPOCHS", {1, kManyEpochs},
             fmt::format("passes over the training data (default: {})", options.usual_epochs));
  const std::string rate = "highest learning rate of the schedule";
  if (options.usual_rate)
    set.value(*options.usual_rate, "lr", "RATE", {0, 1e38}, rate);
  else
    set.value(options.optimization.lr, "lr", "RATE", {0, 1e38},
              rate +
                  " (default: 0.0001; 0.0005 with 4 bits and fewer, 0.001 with such floats and 0.004 with "
                  "such integers of activations; on text 0.0003 to 0.004)");
  set.value(options.batch, "batch,b", "SAMPLES", {1, 1 << 20}, "samples in a batch")
      .value(options.seed, "seed", "NUMBER", {0, kManySteps},
             "seed of weights, order, augmentation and dropout");
  add_device_flag(set, options.general);
  add_teacher_flag(set, options.teacher);
}

void add_training_flags(FlagSet& set, TrainingOptions& options) {
  add_task_flags(set, options.task);
  set.group("Training");
  set.value(options.steps, "steps", "STEPS", {0, kManySteps}, "steps of the run, instead of --epochs");
  add_optimization_flags(set, options.optimization);
  set.value(options.label_smoothing, "label-smoothing", "SHARE", {0, 0.99},
            "share of a target that is spread over all classes (default: 0)")
      .value(options.average_decay, "ema", "DECAY", {0, 0.9999999},
             "average the weights with this decay a step, and save the average; 0: off")
      .value(options.val_fraction, "val-fraction", "SHARE", {0, 0.9},
             "share of the training data held out to choose the best epoch");
  add_augment_flag(set, options.sampling);
  add_distill_flag(set, options.teacher);
  set.value(options.micro_batch, "micro-batch", "SAMPLES", {0, 1 << 20},
            "samples in a part of the batch. The gradients of the parts are summed exactly, with the same "
            "result for any number of processes (mpiexec, Slurm); 0: off");
}

void add_run_flags(FlagSet& set, TrainingOptions& options) {
  set.need({"allow-changes"}, "resume");
  set.group("Run")
      .optional_output(options.profile, "profile", "FILE",
                       "measure where the time of a step goes, and write a trace for Perfetto there; with =, "
                       "by default <output>.profile.json",
                       [&options] { return profile_files(options); })
      .toggle(options.resume, "resume",
              "continue from the output, if it is there; --resume RUN of a run directory: with its flags, "
              "except flags on the command line")
      .toggle(options.allow_changes, "allow-changes",
              "with --resume: continue although rate, schedule, seed or another setting changed")
      .toggle(options.dry_run, "dry-run",
              "check flags, data, network and files, print the plan, write nothing")
      .toggle(options.verbose, "verbose", "a line of progress every second where there is no bar")
      .add_set_flag()
      .keep_line(options.line);
}

void add_training_settings(FlagSet& set, TrainingOptions& options) {
  set.need({"rank_timeout"}, "micro-batch");
  set.settings()
      .value(options.clip_norm, "clip_norm", "NORM", {0, kMostNumber},
             "largest norm of all gradients together; 0 does not clip")
      .value(options.accumulation, "accumulation", "BATCHES", {1, 1 << 20},
             "batches whose gradients make one step")
      .value(options.patience, "patience", "EPOCHS", {0, kManyEpochs},
             "epochs without a better validation before the run stops; 0: never")
      .value(options.save_every, "save_every", "STEPS", {0, kManySteps},
             "steps between checkpoints within an epoch; 0: each epoch only")
      .value(options.checkpoint_blocks, "checkpoint_blocks", "PATTERN",
             "gradient checkpointing: modules, or runs of nodes, that backward computes again, for example "
             "stage?_block?")
      .toggle(options.capture, "capture", "on a GPU: the step becomes CUDA graphs")
      .toggle(options.drop_last, "loader.drop_last",
              "leaves out the rest of an epoch that is less than a batch");
  add_sampling_settings(set, options.sampling);
  add_optimization_settings(set, options.optimization);
  add_distillation_settings(set, options.teacher);
  set.value(options.rank_timeout, "rank_timeout", "SECONDS", {1, kMostNumber},
            "longest wait of one process for another")
      .choice(options.reduction, "reduction", "NAME",
              {{"exact", Reduction::exact}, {"fp32", Reduction::fp32}, {"bf16", Reduction::bf16}},
              "sums of gradients over processes: exact, or fp32 or bf16 with fewer bytes; their result "
              "depends on the number of processes")
      .toggle(options.shard_optimizer, "shard_optimizer",
              "each process keeps the optimizer's state of its part of the parameters only")
      .value(options.keep_epochs, "keep_epochs", "EPOCHS", {0, kManyEpochs},
             "checkpoints of epochs that a run directory keeps, in addition to the last and the best")
      .value(options.log, "log", "LIST",
             "csv, tensorboard or csv,tensorboard: further files of a run directory");
}

RunTarget run_target(const TrainingOptions& options) {
  return {options.command,
          options.output,
          options.resume,
          options.general.force,
          {{"checkpoint", options.checkpoint},
           {"teacher", options.teacher.teacher.value_or("")},
           {"data", options.data},
           {"model", options.model.model.value_or("")},
           {"init", options.model.init.value_or("")}}};
}

std::string output_checkpoint(const TrainingOptions& options) {
  return output_checkpoint(options.output, options.command);
}

bool resuming(const TrainingOptions& options) {
  std::error_code error;
  return options.resume && std::filesystem::exists(output_checkpoint(options), error);
}

void check_same_network(const Identity& wanted, const StateDict& state, const std::string& path) {
  // Class names and normalisation may differ: they do not change the parameters.
  const auto saved = load_identity(state, path).to_json(), own = wanted.to_json();
  for (const char* key : {"model", "sample_shape", "classes", "folded", "quantization", "task"})
    if (saved.value(key, nlohmann::json()) != own.value(key, nlohmann::json()))
      throw FileError(path, "model",
                      fmt::format("[load_checkpoint] {} is a checkpoint of another model: its {} differs: "
                                  "use the model of the checkpoint, another --output, or leave out --resume",
                                  path, key));
}

TrainerOptions trainer_options(const TrainingOptions& options) {
  TrainerOptions out;
  out.epochs = options.epochs.value_or(options.usual_epochs);
  out.steps = options.steps.value_or(0);
  FQ_CHECK(out.steps == 0 || !options.epochs, options.command, "--steps {} and --epochs {}: use one of them",
           out.steps, out.epochs);
  out.update.accumulation = batches_a_step(options);
  take_ranks(out, options);
  out.update.clip_norm = options.clip_norm;
  out.objective.label_smoothing = options.label_smoothing.value_or(0);
  out.optimizer = optimizer_options(options.optimization, options.command);
  if (options.usual_rate) out.optimizer.learning_rate = *options.usual_rate;
  // Checks the text of the schedule. Steps given in epochs are computed again in `complete`.
  out.schedule = schedule_options(options.optimization, 1, options.command);
  out.update.average_decay = options.average_decay;
  out.validation.patience = options.patience;
  check_validation(options, out);
  out.seed = std::uint64_t(options.seed);
  out.checkpoint.out = output_checkpoint(options);
  out.checkpoint.save_every = options.save_every;
  out.execution.checkpoint_blocks = options.checkpoint_blocks;
  out.execution.capture = options.capture;
  out.execution.stop = &stop_requested();
  return out;
}

// Loaders find data that is too small for a batch, and augmentation that does not fit.
void check_batches(const Run& run, const TrainingOptions& options) {
  (void)naming_flags([&] { return make_loaders(run, options, nullptr, 1); });
}

void check_training(const Run& run, const TrainingOptions& options, TrainerOptions trainer) {
  std::optional<QuietLog> later;  // the run logs the same warnings
  if (!options.dry_run) later.emplace();
  // The Trainer changes the model that it gets: it places parameters of ranges and adapters. The check runs
  // on a clone.
  Run copy = run;
  copy.network = run.network.clone();
  stand_in_ranges(copy.network);
  const Loaders loaders = complete(copy, options, trainer);
  naming_flags([&] { Trainer(copy.network.shared_module(), loaders.training, trainer, loaders.validation); });
}

void plan_outputs(const Network* network, const TrainingOptions& options, PlannedFiles& planned) {
  std::vector<std::string> files{output_checkpoint(options)};
  if (options.val_fraction > 0) files.push_back(best_checkpoint_path(files.front()));
  if (run_folder(options.output)) files.push_back(options.output);
  for (const auto& file : files) network != nullptr ? planned.add(file, *network) : planned.add(file);
}

std::string training_step(const TrainingOptions& options) {
  const std::int64_t steps = options.steps.value_or(0);
  const std::int64_t count = steps > 0 ? steps : options.epochs.value_or(options.usual_epochs);
  return fmt::format("{} for {} {}{} on {}", options.resume ? "continue training" : "train", count,
                     steps > 0 ? "step" : "epoch", count == 1 ? "" : "s", options.data);
}

nlohmann::ordered_json train_network(Run& run, TrainerOptions trainer, const TrainingOptions& options,
                                     Output& output) {
  run.network.module().to(chosen_device(options.general, options.command));
  ProfileReport profile(options);
  const Loaders loaders = complete(run, options, trainer);
  print_small_data(*loaders.training, options, output);
  TrainingReport report(output, options.command,
                        loaders.training->options().batch_size * trainer.update.accumulation,
                        sample_noun(*run.data), one_class_each(run.network.task(), *run.data));
  // The order is fixed by references: the Trainer's callbacks refer to recorder and report, which therefore
  // live longer.
  auto recorder = make_recorder(run, options, report);
  const GracefulStop stop;
  // Settings that determine the bits of a run. A resumed run must have the same.
  const auto settings = fq::detail::run_settings(trainer, *loaders.training, loaders.validation.get());
  StateDict saved;
  if (run.resume) {
    saved = checkpoint_to_resume(run, options, trainer, settings);
    // Before the Trainer is made, because its schedule depends on the length.
    take_length(run, options, saved, trainer);
  }
  const auto training = naming_flags([&] {
    return std::make_unique<Trainer>(run.network.shared_module(), loaders.training, trainer,
                                     loaders.validation,
                                     recorder ? recorder->callbacks() : report.callbacks());
  });
  // The plan of memory is traced with float inputs.
  if (!run.data->token_ids())
    report.expect(plan_memory(run.network.module(), batch_shape(run, loaders), trainer.optimizer));
  nlohmann::ordered_json finished;
  const TrainingResult result = naming_flags([&] {
    if (run.resume) {
      training->resume(saved, run.out);
      check_length(run, options, trainer, saved);
      // A finished run is reported again from its record. `fit` then returns at once.
      if (training->done() && is_first_rank()) finished = finished_result(run, options, saved);
    }
    // config.json marks the folder as a run, so it is written only after all checks.
    if (recorder && finished.is_null())
      recorder->begin(run_config(*options.line, run, trainer, settings), saved_step(saved));
    return training->fit();
  });
  if (!finished.is_null()) {
    output.line(
        fmt::format("nothing is left to do: the run of {} is done after {} steps; more --{} continue it",
                    run.out, saved_step(saved), trainer.steps > 0 ? "steps" : "epochs"));
    return finished;
  }
  const nlohmann::ordered_json profiled = profile.finish(output);
  // The last checkpoint is on disk. Profile and record are complete up to the stop.
  if (result.stopped) {
    if (recorder) recorder->finish("stopped by " + stop_name(), nlohmann::ordered_json::object());
    throw Interrupted(options.command,
                      fmt::format(" in epoch {}: continue with --resume", result.epochs + 1));
  }
  auto found = report.finish(result, saved_step(saved), run.out);
  found.update(profiled);
  if (trainer.distributed.ranks)
    found.update(
        {{"ranks", trainer.distributed.ranks->size()}, {"rank_bytes", trainer.distributed.ranks->bytes()}});
  found["weight_bytes"] = weight_bytes(run.network);
  if (const auto folder = run_folder(options.output)) found["run"] = folder->path;
  if (recorder) recorder->finish("done", found);
  return found;
}

}  // namespace fq::cli
