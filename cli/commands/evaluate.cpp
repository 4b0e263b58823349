#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/class_names.h"
#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/tables/class_scores.h"

namespace fq::cli {
namespace {

struct Found {
  Score score;
  ClassScores classes;
};

Found evaluated(Network& network, const std::shared_ptr<const Dataset>& data, std::int64_t batch,
                Output& output) {
  check_classifies(network, "evaluate");
  check_calibrated(network, "evaluate");
  Scoring sum;
  ClassScores classes(network.classes());
  const auto visit = [&](const Batch& samples, const Variable& logits) {
    sum.add(samples, logits);
    classes.add(answers(logits.tensor()), samples.y);
  };
  for_each_batch(network, data, batch, visit, output, "evaluate");
  return {sum.score(), std::move(classes)};
}

}  // namespace

FlagSet evaluate_flags() {
  FlagSet set(
      "evaluate",
      "Accuracy and loss of a checkpoint on one group of a data set, and of each class whose name is known.",
      "CHECKPOINT --data FILE [flags]");
  set.group("Network").argument("checkpoint", "FILE", "the checkpoint");
  add_data_flags(set, "test");
  add_general_flags(set);
  return set;
}

nlohmann::ordered_json evaluate(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  const auto batch = flags.integer("batch", 1, 1 << 20);
  Network network = load_network(flags.required("checkpoint"));
  network.module->to(device_of(flags));
  const auto data = open_data_for(network, flags, flags.text("split"));
  const auto names = class_names(network);
  const Stopwatch watch;
  const auto [result, classes] = evaluated(network, data, batch, output);
  if (!names.empty()) output.line(class_table(classes, names));
  output.line(fmt::format("accuracy {}, loss {:.4f}, {} images in {}", percent(result.accuracy, result.count),
                          result.loss, result.count, duration(watch.seconds())));
  return {{"checkpoint", flags.text("checkpoint")},
          {"split", flags.text("split")},
          {"accuracy", 100 * result.accuracy},
          {"loss", result.loss},
          {"count", result.count},
          {"weight_bytes", weight_bytes(network)},
          {"classes", class_json(classes, names)}};
}

}  // namespace fq::cli
