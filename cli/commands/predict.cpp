#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/tables/class_table.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/log.h"
#include "fakequant/network/qat.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/losses.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

struct PredictOptions {
  std::string checkpoint, output;
  bool codes = false;
  DataOptions data;
  GeneralOptions general;
};

/// Returns the number of predictions of each class.
std::vector<std::int64_t> count_predictions(const Tensor& logits) {
  if (logits.rank() != 2) return {};
  std::vector<std::int64_t> counts(static_cast<std::size_t>(logits.dim(1)));
  const Tensor found = predictions(logits);
  for (std::int64_t i = 0; i < found.numel(); ++i)
    // Logits with NaN have the prediction -1.
    if (const auto c = found.data<std::int64_t>()[i]; c >= 0) ++counts[static_cast<std::size_t>(c)];
  return counts;
}

// Only classes that were predicted, so that the line stays short.
std::string counts_text(const std::vector<std::int64_t>& counts, const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t c = 0; c < counts.size(); ++c)
    if (counts[c] > 0)
      text += fmt::format("{}{} {}", text.empty() ? "answers: " : ", ", counts[c],
                          class_label(names, std::int64_t(c)));
  return text;
}

ordered_json counts_json(const std::vector<std::int64_t>& counts, const std::vector<std::string>& names) {
  ordered_json list = ordered_json::array();
  for (std::size_t c = 0; c < counts.size(); ++c)
    list.push_back(
        {{"class", c}, {"name", c < names.size() ? ordered_json(names[c]) : nullptr}, {"count", counts[c]}});
  return list;
}

FlagSet predict_flags(PredictOptions& options) {
  FlagSet set("predict", "Writes the outputs of a network, and the codes of its quantizers, to an HDF5 file.",
              "CHECKPOINT --data FILE -o FILE [flags]");
  set.group("Network")
      .argument(options.checkpoint, "checkpoint", "FILE", "the checkpoint")
      .required()
      .output(options.output, "output,o", "FILE",
              "dataset logits [N, classes], sequences of --loss ctc, and codes/<quantizer> in logical order; "
              "attribute class_names",
              kind::predictions)
      .required()
      .toggle(options.codes, "codes", "write the codes of every activation quantizer too");
  add_data_flags(set, options.data);
  add_general_flags(set, options.general);
  return set;
}

// `samples` is the first axis of the logits. Only the first value is named: a NaN in the weights reaches
// every sample.
void warn_not_finite(const Tensor& logits, std::int64_t samples) {
  if (const auto found = fq::detail::find_not_finite({{"outputs", logits}}))
    log(LogLevel::warning, fmt::format("[predict] the outputs for sample {} have {}",
                                       found->index / (logits.numel() / samples), found->value));
}

void predict(const PredictOptions& options, const RunningNetwork& running, Output& output,
             ordered_json& result) {
  Network network = *running.network;
  const auto& data = running.data;
  // Not in the plan, because a dry run does not use a GPU.
  network.module().to(chosen_device(options.general, "predict"));
  const auto classes = network.identity().class_names;
  const Task task = network.task();
  std::vector<std::string> datasets;
  std::vector<std::int64_t> counts;
  // Called once: without a limit of `part_bytes` all predictions are one part.
  const auto save = [&](StateDict state) {
    if (!classes.empty()) state.set_attribute("class_names", classes);
    if (task.sequences()) state.set("sequences", ctc_decode(state.at("logits"), task.loss.blank));
    // All ranks have all predictions. One of them writes the file.
    if (is_first_rank()) save_state(options.output, state, "predictions");
    warn_not_finite(state.at("logits"), data->size());
    datasets = state.names();
    if (takes_classes(task.loss)) counts = count_predictions(state.at("logits"));
  };
  predict_parts(network, data, options.data.batch, {.codes = options.codes}, save, output, "predict");
  if (!classes.empty() && !counts.empty()) output.line(counts_text(counts, classes));
  output.line(fmt::format("{} {}, {} datasets in {}", data->size(), sample_noun(*data), datasets.size(),
                          options.output));
  result = {{"output", options.output},
            {"count", data->size()},
            {"datasets", datasets},
            {"answers", counts_json(counts, classes)}};
}

Plan plan_predict(const PredictOptions& options, PlannedFiles& planned) {
  const auto running =
      check_running(options.checkpoint, options.data, nullptr, Labels::none, planned, "predict");
  planned.add(options.output);
  Plan plan;
  plan.add(fmt::format("write the predictions of {} on the group {} of {} to {}", options.checkpoint,
                       options.data.split, options.data.data, options.output),
           [&options, running](Output& output, ordered_json& result) {
             predict(options, running, output, result);
           });
  return plan;
}

}  // namespace

Command predict_command() {
  return {"predict", "write the outputs, and the codes, for a data set", typed(predict_flags, plan_predict),
          true};
}

}  // namespace fq::cli
