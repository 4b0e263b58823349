#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/initial_weights.h"

namespace fq::cli {

namespace {

struct FoldOptions {
  std::string checkpoint, output;
  DataOptions data;
  GeneralOptions general;
};

FlagSet fold_flags(FoldOptions& options) {
  FlagSet set(
      "fold",
      "Folds batch normalisation into the linear and convolution layers before it. With --data, prints "
      "how the accuracy changes and, for a quantized network, how many codes change.",
      "CHECKPOINT -o FILE [flags]");
  set.group("Files")
      .argument(options.checkpoint, "checkpoint", "FILE", "a float or quantized checkpoint")
      .required()
      .output(options.output, "output,o", "FILE", "the folded checkpoint", kind::checkpoint)
      .required()
      .need({"split", "batch"}, "data");
  add_data_flags(set, options.data, false);
  add_general_flags(set, options.general);
  return set;
}

void compare_folded(const FoldOptions& options, Network before, RunningNetwork after, Output& output,
                    nlohmann::ordered_json& result) {
  // Both networks must be on one device, because they read the same batches.
  for (const Network* computing : {&before, &*after.network})
    computing->module().to(chosen_device(options.general, "fold"));
  const FoldChange change = compare(before, *after.network, after.data, options.data.batch, output);
  print(change, output);
  result.update(to_json(change));
}

Plan plan_fold(const FoldOptions& options, PlannedFiles& planned) {
  const bool compares = !options.data.data.empty();
  const auto running =
      compares ? check_running(options.checkpoint, options.data, nullptr, Labels::needed, planned, "fold")
               : RunningNetwork{planned.network(options.checkpoint), nullptr};
  // The network depends on an earlier phase.
  if (!running.network) {
    planned.add(options.output);
    return {};
  }
  // Folds in the plan, before anything is written, so that an error leaves no file. The handle shares its
  // module with `running.network`.
  Network network = *running.network;
  check_not_compressed(network, "fold", options.checkpoint);
  const std::size_t count = network.fold();
  planned.add(options.output, network);
  Plan plan;
  plan.add(fmt::format("fold batch normalisation of {}", options.checkpoint),
           [&options, count](Output&, auto& result) {
             result["output"] = options.output;
             result["folded"] = count;
           });
  if (compares)
    plan.add(
        fmt::format("compare before and after on the group {} of {}", options.data.split, options.data.data),
        // The module of `running` is folded by now, so the network before folding is loaded a second time.
        [&options, before = *planned.network(options.checkpoint), running](Output& output, auto& result) {
          compare_folded(options, before, running, output, result);
        });
  plan.add(fmt::format("write {}", options.output), [&options, network, count](Output& output, auto&) {
    network.save(options.output);
    output.line(fmt::format("{} batch norms folded, {}", count, options.output));
  });
  return plan;
}

}  // namespace

Command fold_command() {
  return {"fold", "fold batch normalisation into the layers before it", typed(fold_flags, plan_fold), true};
}

}  // namespace fq::cli
