#include "fakequant/cli/training.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "fakequant/cli/augmentation.h"
#include "fakequant/cli/command.h"
#include "fakequant/cli/commands/profile.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/flags/planned_files.h"
#include "fakequant/cli/optimization.h"
#include "fakequant/cli/runs/resumption.h"
#include "fakequant/cli/runs/run_config.h"
#include "fakequant/cli/runs/run_flags.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/runs/run_recorder.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/tables/sample_noun.h"
#include "fakequant/cli/tables/training_report.h"
#include "fakequant/cli/text/network_tokenizer.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/validation_split.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/detail/run_settings.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::cli {
namespace {

constexpr double kMany = 1e9;
constexpr std::uint64_t kSplitSeed = 0;  // the same images are held out for every --seed

struct Loaders {
  std::shared_ptr<DataLoader> training, validation;
};

std::int64_t batch_of_step(const Flags& flags) { return flags.integer("batch", 1, 1 << 20); }
std::int64_t micro_batch(const Flags& flags) { return flags.integer("micro-batch", 0, 1 << 20); }

/// Of one gradient.
std::int64_t images_at_once(const Flags& flags) {
  return micro_batch(flags) == 0 ? batch_of_step(flags) : micro_batch(flags);
}

/// Gradients of a step.
std::int64_t batches_a_step(const Flags& flags) {
  const std::int64_t given = flags.integer("accumulate", 1, 1 << 20);
  FQ_CHECK(given == 1 || micro_batch(flags) == 0, flags.command(),
           "--accumulate and --micro-batch: give one, a larger --batch with --micro-batch");
  return given * naming_flags([&] {
           return micro_batches(batch_of_step(flags), micro_batch(flags), launched().ranks, flags.command());
         });
}

/// Null without --micro-batch.
std::shared_ptr<Communicator> ranks_of(const Flags& flags) {
  return micro_batch(flags) == 0 ? nullptr : started_ranks(flags.number("rank-timeout", 1, kMany));
}

/// Of data that is less than a batch, all of it; parts of --micro-batch stay as they are.
LoaderOptions within(LoaderOptions options, const Dataset& data, const Flags& flags) {
  if (micro_batch(flags) == 0) options.batch_size = std::min(options.batch_size, data.size());
  return options;
}

void tell_small_data(const DataLoader& training, const Flags& flags, Output& output) {
  if (const std::int64_t batch = training.options().batch_size; batch < images_at_once(flags))
    output.line(fmt::format("{} {} to train on, fewer than --batch {}: a batch is all of them", batch,
                            sample_noun(training.data()), images_at_once(flags)));
}

Loaders make_loaders(const Run& run, const Flags& flags, const Communicator* ranks, std::int64_t turn) {
  LoaderOptions options;
  options.batch_size = images_at_once(flags);
  options.drop_last = !flags.on("keep-last");
  if (ranks != nullptr) options = share_of_rank(options, *ranks, turn);
  options.seed = std::uint64_t(flags.integer("seed", 0, kManySteps));
  take_augmentation(options, flags, run.network.task(), *run.data);
  options.device = device_of(flags);
  const double fraction = flags.number("val-fraction", 0, 0.9);
  if (fraction == 0)
    return {std::make_shared<DataLoader>(run.data, within(options, *run.data, flags)), nullptr};
  const auto [rest, validation] = hold_out(run.data, fraction, kSplitSeed);
  return {std::make_shared<DataLoader>(rest, within(options, *rest, flags)),
          std::make_shared<DataLoader>(
              validation,
              share_of_rank({.batch_size = options.batch_size, .shuffle = false, .device = options.device},
                            *run_ranks()))};
}

Shape batch_shape(const Run& run, const Loaders& loaders) {
  Shape shape = run.network.input_shape();
  shape[0] = loaders.training->options().batch_size;
  return shape;
}

/// What the data is read by; the options get what goes by the network and the data.
Loaders complete(const Run& run, const Flags& flags, TrainerOptions& options) {
  Loaders loaders =
      naming_flags([&] { return make_loaders(run, flags, options.ranks.get(), options.accumulation); });
  complete_training(options, run.network, *run.data);
  options.metric_options = metric_options_of(run.network);
  const std::int64_t batches = loaders.training->batches_per_epoch();
  options.schedule = read_schedule(flags, (batches + options.accumulation - 1) / options.accumulation);
  return loaders;
}

/// Null without a run directory, and on other ranks than the first.
std::unique_ptr<RunRecorder> recorder_of(const Run& run, const Flags& flags, TrainingReport& report) {
  const auto folder = run_folder(flags);
  if (!folder || !is_first_rank()) return nullptr;
  RecordedRun recorded{.run = &run, .batch = images_at_once(flags)};
  const double fraction = flags.number("val-fraction", 0, 0.9);
  if (report.has_accuracy() && run.data->size() > 1) {
    recorded.of = fraction > 0 ? "validation" : "training";
    recorded.rows = some_held_out(run.data->size(), fraction > 0 ? fraction : 0.5, kSplitSeed, kMostExamined);
  }
  return std::make_unique<RunRecorder>(*folder, flags, std::move(recorded), report);
}

}  // namespace

std::vector<WrittenFile> training_files(const Flags& flags) {
  if (flags.text("output").empty()) return {};
  check_run_flags(flags);
  check_run_folder(flags);
  const std::string out = output_checkpoint(flags);
  const bool in_folder = run_folder(flags).has_value();
  std::vector<WrittenFile> files{{out, kind::checkpoint, in_folder, flags.on("resume") ? "checkpoint" : ""}};
  if (flags.number("val-fraction", 0, 0.9) > 0 && has_files_beside(out))
    files.push_back({best_checkpoint_path(out), kind::checkpoint});
  return files;
}

bool resuming(const Flags& flags) {
  std::error_code error;
  return flags.on("resume") && std::filesystem::exists(output_checkpoint(flags), error);
}

void check_same_network(const Identity& wanted, const StateDict& state, const std::string& path) {
  const auto saved = load_identity(state, path).to_json(), own = wanted.to_json();
  for (const char* key : {"model", "sample_shape", "classes", "folded", "quantization", "task"})
    if (saved.value(key, nlohmann::json()) != own.value(key, nlohmann::json()))
      throw FileError(
          path, "model",
          fmt::format("[load_checkpoint] {} is a checkpoint of another model: its {} differs: give what it "
                      "was made with, another --output, or leave out --resume",
                      path, key));
}

TrainerOptions read_training(const Flags& flags) {
  FQ_CHECK(!flags.on("allow-changes") || flags.on("resume"), flags.command(),
           "--allow-changes is for --resume: give that too, or leave it out");
  TrainerOptions options;
  options.epochs = flags.integer("epochs", 1, kManyEpochs);
  options.steps = flags.integer("steps", 0, kManySteps);
  FQ_CHECK(options.steps == 0 || !flags.given("epochs"), flags.command(),
           "--steps {} and --epochs {}: give one of them", options.steps, options.epochs);
  options.accumulation = batches_a_step(flags);
  options.ranks = ranks_of(flags);
  const std::string reduction = flags.choice("reduce", {"exact", "fp32", "bf16"});
  options.reduction = reduction == "fp32"   ? Reduction::fp32
                      : reduction == "bf16" ? Reduction::bf16
                                            : Reduction::exact;
  FQ_CHECK(reduction == "exact" || options.ranks, flags.command(),
           "--reduce {} is for several processes: give --micro-batch too", reduction);
  options.shard_optimizer = flags.on("shard-optimizer");
  FQ_CHECK(!options.shard_optimizer || options.ranks, flags.command(),
           "--shard-optimizer is for several processes: give --micro-batch too");
  options.clip_norm = flags.number("clip", 0, kMany);
  options.label_smoothing = flags.number("label-smoothing", 0, 0.99);
  options.optimizer = read_optimizer(flags);
  options.schedule = read_schedule(flags, 1);
  options.average_decay = flags.number("ema", 0, 0.9999999);
  options.patience = flags.integer("early-stopping", 0, kManyEpochs);
  FQ_CHECK(options.schedule.kind != "plateau" || flags.number("val-fraction", 0, 0.9) > 0, flags.command(),
           "--schedule plateau needs samples to validate on: give --val-fraction too, such as 0.1");
  FQ_CHECK(options.patience == 0 || flags.number("val-fraction", 0, 0.9) > 0, flags.command(),
           "--early-stopping {} needs samples to validate on: give --val-fraction too, such as 0.1",
           options.patience);
  options.seed = std::uint64_t(flags.integer("seed", 0, kManySteps));
  options.out = output_checkpoint(flags);
  options.save_every = flags.integer("save-every", 0, kManySteps);
  options.checkpoint_blocks = flags.text("checkpoint-blocks");
  options.capture = !flags.on("no-capture");
  options.stop = &stop_requested();
  return options;
}

void check_batches(const Run& run, const Flags& flags) {
  (void)naming_flags([&] { return make_loaders(run, flags, nullptr, 1); });
}

void check_training(Run& run, const Flags& flags, TrainerOptions options) {
  stand_in_ranges(run.network);
  const Loaders loaders = complete(run, flags, options);
  naming_flags([&] { Trainer(run.network.shared_module(), loaders.training, options, loaders.validation); });
}

void plan_outputs(const Network* network, const Flags& flags, PlannedFiles& planned) {
  std::vector<std::string> files{output_checkpoint(flags)};
  if (flags.number("val-fraction", 0, 0.9) > 0) files.push_back(best_checkpoint_path(files.front()));
  if (run_folder(flags)) files.push_back(flags.text("output"));
  for (const auto& file : files) network != nullptr ? planned.add(file, *network) : planned.add(file);
}

nlohmann::ordered_json train_network(Run& run, TrainerOptions options, const Flags& flags, Output& output) {
  run.network.module().to(device_of(flags));
  ProfileReport profile(flags);
  const Loaders loaders = complete(run, flags, options);
  tell_small_data(*loaders.training, flags, output);
  TrainingReport report(output, flags.command(),
                        loaders.training->options().batch_size * options.accumulation, sample_noun(*run.data),
                        one_class_each(run.network.task(), *run.data));
  auto recorder = recorder_of(run, flags, report);
  const GracefulStop stop;
  const auto settings = fq::detail::run_settings(options, *loaders.training, loaders.validation.get());
  StateDict saved;
  if (run.resume) {
    saved = checkpoint_to_resume(run, flags, options, settings);
    take_length(run, flags, saved, options);
  }
  const auto trainer = naming_flags([&] {
    return std::make_unique<Trainer>(run.network.shared_module(), loaders.training, options,
                                     loaders.validation,
                                     recorder ? recorder->callbacks() : report.callbacks());
  });
  if (!run.data->token_ids())
    report.expect(plan_memory(run.network.module(), batch_shape(run, loaders), options.optimizer));
  nlohmann::ordered_json told;
  const TrainingResult result = naming_flags([&] {
    if (run.resume) {
      trainer->resume(saved, run.out);
      check_length(run, flags, options, saved);
      if (trainer->done() && is_first_rank()) told = told_result(run, flags, saved);
    }
    if (recorder && told.is_null())
      recorder->begin(run_config(flags, run, options, settings), step_of(saved));
    return trainer->fit();
  });
  if (!told.is_null()) {
    output.line(fmt::format("nothing is left to do: {} is of a run that is done, {} steps; more --{} go on",
                            run.out, step_of(saved), options.steps > 0 ? "steps" : "epochs"));
    return told;
  }
  const nlohmann::ordered_json profiled = profile.finish(output);
  if (result.stopped) {
    if (recorder) recorder->finish("stopped by " + stop_name(), nlohmann::ordered_json::object());
    throw Interrupted(flags.command(), fmt::format(" in epoch {}: go on with --resume", result.epochs + 1));
  }
  auto found = report.finish(result, step_of(saved), run.out);
  found.update(profiled);
  if (options.ranks) found.update({{"ranks", options.ranks->size()}, {"rank_bytes", options.ranks->bytes()}});
  found["weight_bytes"] = weight_bytes(run.network);
  if (const auto folder = run_folder(flags)) found["run"] = folder->path;
  if (recorder) recorder->finish("done", found);
  return found;
}

}  // namespace fq::cli
