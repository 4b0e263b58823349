#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/fine_tuning/teacher.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/runs/folder_lock.h"
#include "fakequant/cli/runs/run_files.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/training.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq::cli {
namespace {

std::optional<Network> starting_checkpoint(const Flags& flags, const PlannedFiles& planned) {
  FQ_CHECK(!flags.given("model"), "train", "--model and --checkpoint: give one");
  FQ_CHECK(!flags.given("init"), "train", "--init and --checkpoint: give one, --init with --model");
  auto network = planned.network(flags.text("checkpoint"));
  if (!network) return network;
  check_not_compressed(*network, "train", flags.text("checkpoint"));
  FQ_CHECK(!network->quantized(), "train", "{} is quantized: use fakequant qat", flags.text("checkpoint"));
  return network;
}

/// The run that the flags describe; empty if the network is not known yet.
std::optional<Run> prepare(const Flags& flags, const TrainerOptions& options, const PlannedFiles& planned) {
  const bool initial = !flags.given("checkpoint");
  auto data = initial ? open_data(flags, "train") : nullptr;
  auto network =
      initial ? std::optional(make_network(flags, *data, options.seed)) : starting_checkpoint(flags, planned);
  if (!network) return std::nullopt;
  Run run{
      .network = std::move(*network), .data = std::move(data), .out = options.out, .resume = resuming(flags)};
  if (initial) {
    run.initialised = init_weights(run.network, flags);
  } else {
    take_task(run.network, flags);
    run.data = open_data_for(run.network, flags, "train");
  }
  check_task(run.network, *run.data, "train");
  return run;
}

/// Whether `out` is what a finished run with --fold-bn left; such a file has no training state to go on with.
bool finished_and_folded(const Run& run) {
  const StateDict state = load_checkpoint(run.out);
  Identity wanted = run.network.identity();
  wanted.folded = load_identity(state, run.out).folded;
  check_same_network(wanted, state, run.out);
  return wanted.folded && !has_training_state(state);
}

}  // namespace

FlagSet train_flags() {
  FlagSet set("train", "Trains a network in float on the group train of a data set.",
              "--model FILE|NAME --data FILE -o FILE [flags]");
  add_model_flags(set);
  add_init_flags(set, true);
  set.value("checkpoint", "FILE", "start from this network and its weights in place of --model")
      .output("output,o", "FILE|RUN/", output_help, "", training_files)
      .toggle("fold-bn", "fold batch normalisation at the end");
  add_data_flags(set, nullptr);
  add_task_flags(set);
  add_training_flags(set, "40", "0.004");
  add_teacher_flags(set, false);
  add_general_flags(set);
  return set;
}

void check_train(const Flags& flags, PlannedFiles& planned) {
  const TrainerOptions options = read_training(flags);
  check_teacher_flags(flags, planned);
  auto run = prepare(flags, options, planned);
  plan_outputs(run ? &run->network : nullptr, flags, planned);
  if (!run) return;
  check_teacher(flags, run->network, planned);
  check_training(*run, flags, options);
  if (!flags.on("fold-bn")) return;
  Network folded = Network::create(run->network.identity());
  folded.fold();
  planned.add(options.out, folded);
}

nlohmann::ordered_json train(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  check_teacher_flags(flags, {});
  TrainerOptions options = read_training(flags);
  const auto lock = lock_run(flags);
  Run run = prepare(flags, options, {}).value();
  if (run.resume && finished_and_folded(run)) {
    output.line(run.out + " is finished");
    return {{"output", run.out}};
  }
  open_run_folder(flags);
  if (!run.initialised.empty()) output.line(run.initialised);
  options.distillation = read_teacher(flags, run.network);
  auto result = train_network(run, std::move(options), flags, output);
  if (flags.on("fold-bn") && is_first_rank()) {
    Network trained = load_network(run.out);
    const auto folded = trained.fold();
    result["folded"] = folded;
    trained.save(run.out);
    output.line(fmt::format("{} batch norms folded", folded));
  }
  return result;
}

}  // namespace fq::cli
