#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/code_recorder.h"
#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flag_groups.h"
#include "fakequant/core/io/state_file.h"
#include "fakequant/core/join.h"

namespace fq::cli {
namespace {

StateDict predictions(Network& network, std::shared_ptr<const Dataset> data, std::int64_t batch,
                      bool with_codes, Output& output) {
  CodeRecorder recorder(*network.module);
  std::vector<Tensor> logits;
  const auto keep = [&](const Batch&, const Variable& y) {
    logits.push_back(y.tensor().to(Layout::row_major));
    recorder.next_batch();
  };
  if (with_codes) {
    const RecordScope scope(recorder);
    for_each_batch(network, std::move(data), batch, keep, output, "predict");
  } else {
    for_each_batch(network, std::move(data), batch, keep, output, "predict");
  }
  StateDict state;
  state.set("logits", fq::detail::join(logits, 0));
  for (const auto& [name, parts] : recorder.codes()) state.set("codes/" + name, fq::detail::join(parts, 0));
  return state;
}

}  // namespace

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
  const auto data = open_data(flags, flags.text("split"), 0, false);
  check_fits(network, *data, "predict");
  check_calibrated(network, "predict");
  const StateDict state = predictions(network, data, batch, flags.on("codes"), output);
  save_state(path, state, "predictions");
  output.line(fmt::format("{} images, {} datasets in {}", data->size(), state.size(), path));
  return {{"output", path}, {"count", data->size()}, {"datasets", state.names()}};
}

}  // namespace fq::cli
