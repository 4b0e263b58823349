#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/tables/class_labels.h"
#include "fakequant/cli/tables/sample_noun.h"
#include "fakequant/core/io/state_file.h"
#include "fakequant/core/log.h"
#include "fakequant/network/qat.h"
#include "fakequant/train/ctc.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/loop/evaluate.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

/// How often each class is the answer.
std::vector<std::int64_t> count_answers(const Tensor& logits) {
  if (logits.rank() != 2) return {};
  std::vector<std::int64_t> counts(static_cast<std::size_t>(logits.dim(1)));
  const Tensor found = answers(logits);
  for (std::int64_t i = 0; i < found.numel(); ++i)
    if (const auto c = found.data<std::int64_t>()[i]; c >= 0) ++counts[static_cast<std::size_t>(c)];
  return counts;
}

std::string answers_text(const std::vector<std::int64_t>& counts, const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t c = 0; c < counts.size(); ++c)
    if (counts[c] > 0)
      text += fmt::format("{}{} {}", text.empty() ? "answers: " : ", ", counts[c],
                          class_label(names, std::int64_t(c)));
  return text;
}

ordered_json answers_json(const std::vector<std::int64_t>& counts, const std::vector<std::string>& names) {
  ordered_json list = ordered_json::array();
  for (std::size_t c = 0; c < counts.size(); ++c)
    list.push_back(
        {{"class", c}, {"name", c < names.size() ? ordered_json(names[c]) : nullptr}, {"count", counts[c]}});
  return list;
}

}  // namespace

FlagSet predict_flags() {
  FlagSet set("predict", "Writes the outputs of a network, and the codes of its quantizers, to an HDF5 file.",
              "CHECKPOINT --data FILE -o FILE [flags]");
  set.group("Network")
      .argument("checkpoint", "FILE", "the checkpoint")
      .output("output,o", "FILE",
              "dataset logits [N, classes], sequences of --loss ctc, and codes/<quantizer> in logical order; "
              "attribute class_names",
              kind::predictions)
      .toggle("codes", "write the codes of every activation quantizer too");
  add_data_flags(set, "test");
  add_general_flags(set);
  return set;
}

ordered_json predict(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  const auto batch = flags.integer("batch", 1, 1 << 20);
  const std::string path = flags.required("output");
  Network network = load_network(flags.required("checkpoint"));
  network.module().to(device_of(flags));
  const auto data = open_data_for(network, flags, flags.text("split"), Labels::none);
  check_calibrated(network, "predict");
  const auto classes = network.identity().class_names;
  const Task task = network.task();
  const bool classifies = takes_classes(task.loss);
  std::vector<std::string> datasets;
  std::vector<std::int64_t> counts;
  const auto save = [&](StateDict state) {
    if (!classes.empty()) state.set_attribute("class_names", classes);
    if (task.sequences()) state.set("sequences", ctc_decode(state.at("logits"), task.loss.blank));
    if (is_first_rank()) save_state(path, state, "predictions");
    if (const auto found = fq::detail::find_not_finite({{"outputs", state.at("logits")}}))
      log(LogLevel::warning,
          fmt::format("[predict] the outputs for sample {} have {}",
                      found->index / (state.at("logits").numel() / data->size()), found->value));
    datasets = state.names();
    if (classifies) counts = count_answers(state.at("logits"));
  };
  predict_parts(network, data, batch, {.codes = flags.on("codes")}, save, output, "predict");
  if (!classes.empty() && !counts.empty()) output.line(answers_text(counts, classes));
  output.line(
      fmt::format("{} {}, {} datasets in {}", data->size(), sample_noun(*data), datasets.size(), path));
  return {{"output", path},
          {"count", data->size()},
          {"datasets", datasets},
          {"answers", answers_json(counts, classes)}};
}

}  // namespace fq::cli
