#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/flag_groups.h"
#include "fakequant/cli/predictions.h"
#include "fakequant/core/io/state_file.h"

namespace fq::cli {

FlagSet predict_flags() {
  FlagSet set("predict", "Writes the outputs of a network, and the codes of its quantizers, to an HDF5 file.",
              "CHECKPOINT --data FILE -o FILE [flags]");
  set.group("Network")
      .argument("checkpoint", "FILE", "the checkpoint")
      .value("output,o", "FILE", "dataset logits [N, classes], and codes/<quantizer> in logical order")
      .toggle("codes", "write the codes of every activation quantizer too");
  add_data_flags(set, "test");
  add_general_flags(set);
  return set;
}

nlohmann::ordered_json predict(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  const auto batch = flags.integer("batch", 1, 1 << 20);
  const std::string path = flags.required("output");
  Network network = load_network(flags.required("checkpoint"));
  network.module->to(device_of(flags));
  const auto data = open_data(flags, flags.text("split"), 0, false);
  check_fits(network, *data, "predict");
  check_calibrated(network, "predict");
  std::vector<std::string> names;
  const auto save = [&](const StateDict& state) {
    save_state(path, state, "predictions");
    names = state.names();
  };
  predict_parts(network, data, {.batch = batch, .codes = flags.on("codes")}, save, output, "predict");
  output.line(fmt::format("{} images, {} datasets in {}", data->size(), names.size(), path));
  return {{"output", path}, {"count", data->size()}, {"datasets", names}};
}

}  // namespace fq::cli
