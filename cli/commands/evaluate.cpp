#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/network_tokenizer.h"
#include "fakequant/cli/tables/class_table.h"
#include "fakequant/network/detail/data_checks.h"

namespace fq::cli {
namespace {

struct EvaluateOptions {
  std::string checkpoint;
  TaskText task;
  DataOptions data;
  GeneralOptions general;
};

struct Found {
  Evaluation score;
  bool accuracy;
  ClassScores classes;
};

Found evaluated(Network& network, const std::shared_ptr<const Dataset>& data, std::int64_t batch,
                Output& output) {
  check_task(network, *data, "evaluate");
  check_calibrated(network, "evaluate");
  Scoring sum(network, *data, token_metric_options(network));
  // Without one class per sample there is no table of classes.
  ClassScores classes(sum.accuracy() ? network.classes() : 0);
  // Scores and counts are added in the order of the batches, on every rank alike.
  const auto visit = [&](const Tensor& logits, const Tensor& labels) {
    sum.add(logits, labels);
    if (sum.accuracy()) classes.add(predictions(logits), labels);
  };
  visit_outputs(network, data, batch, visit, output, "evaluate");
  return {sum.score(), sum.accuracy(), std::move(classes)};
}

/// Returns "accuracy 98.61 % ± 0.62, loss 0.0421, f1 0.9853".
std::string score_text(const Found& found) {
  const Evaluation& score = found.score;
  std::string text = fmt::format("loss {:.4f}", score.loss);
  if (found.accuracy) text = fmt::format("accuracy {}, {}", percent(score.accuracy, score.count), text);
  return score.metrics.empty() ? text : text + ", " + metrics_text(score.metrics);
}

void evaluate(const EvaluateOptions& options, const RunningNetwork& running, Output& output,
              nlohmann::ordered_json& result) {
  Network network = *running.network;
  // Moved here and not in the plan: a dry run does not use the GPU.
  network.module().to(chosen_device(options.general, "evaluate"));
  // The table is for people and needs names. JSON has all classes with their numbers.
  const auto names = network.identity().class_names;
  const Stopwatch watch;
  const Found found = evaluated(network, running.data, options.data.batch, output);
  if (found.accuracy && !names.empty()) output.line(class_table(found.classes, names));
  output.line(fmt::format("{}, {} {} in {}", score_text(found), found.score.count, sample_noun(*running.data),
                          duration(watch.seconds())));
  result["checkpoint"] = options.checkpoint;
  result["split"] = options.data.split;
  // Keys without a meaning for the task are left out.
  if (found.accuracy) result["accuracy"] = 100 * found.score.accuracy;
  result["loss"] = found.score.loss;
  result["count"] = found.score.count;
  result["weight_bytes"] = weight_bytes(network);
  result["metrics"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : found.score.metrics) result["metrics"][name] = value;
  if (found.accuracy) result["classes"] = class_json(found.classes, names);
}

FlagSet evaluate_flags(EvaluateOptions& options) {
  FlagSet set("evaluate",
              "Prints accuracy, loss and metrics of a checkpoint on one group of a data set, and the "
              "accuracy of each class with a name.",
              "CHECKPOINT --data FILE [flags]");
  set.group("Network").argument(options.checkpoint, "checkpoint", "FILE", "the checkpoint").required();
  add_task_flags(set, options.task);
  add_data_flags(set, options.data);
  add_general_flags(set, options.general);
  return set;
}

Plan plan_evaluate(const EvaluateOptions& options, PlannedFiles& planned) {
  const auto running =
      check_running(options.checkpoint, options.data, &options.task, Labels::needed, planned, "evaluate");
  Plan plan;
  plan.add(fmt::format("evaluate {} on the group {} of {}", options.checkpoint, options.data.split,
                       options.data.data),
           [&options, running](Output& output, nlohmann::ordered_json& result) {
             evaluate(options, running, output, result);
           });
  return plan;
}

}  // namespace

Command evaluate_command() {
  return {"evaluate", "accuracy and loss on a data set", typed(evaluate_flags, plan_evaluate), true};
}

}  // namespace fq::cli
