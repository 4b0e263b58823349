#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flag_groups.h"

namespace fq::cli {

FlagSet evaluate_flags() {
  FlagSet set("evaluate", "Accuracy and loss of a checkpoint on one group of a data set.",
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
  const auto data = open_data(flags, flags.text("split"), network.classes());
  const Stopwatch watch;
  const Score result = score(network, data, batch, output);
  output.line(fmt::format("accuracy {}, loss {:.4f}, {} images in {}", percent(result.accuracy, result.count),
                          result.loss, result.count, duration(watch.seconds())));
  return {{"checkpoint", flags.text("checkpoint")},
          {"split", flags.text("split")},
          {"accuracy", 100 * result.accuracy},
          {"loss", result.loss},
          {"count", result.count},
          {"weight_bytes", weight_bytes(network)}};
}

}  // namespace fq::cli
