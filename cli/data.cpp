#include "fakequant/cli/data.h"

#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/network_tokenizer.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/network/detail/data_checks.h"
#include "fakequant/network/qat.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::cli {

void add_task_flags(FlagSet& set, TaskText& options) {
  set.group("Task")
      .value(options.loss, "loss", "NAME",
             "cross_entropy (with ,weights=balanced or W:W:.., ,ignore=LABEL), bce (,positive=WEIGHT), focal "
             "(,alpha=A,gamma=G), dice (,smooth=S), ctc (,blank=CLASS,ignore=LABEL,zero_infinity=1), mse, l1 "
             "or huber (,delta=D) (default: of the checkpoint, cross_entropy)")
      .value(
          options.metrics, "metrics", "LIST",
          "accuracy, top5, f1, recall, iou, auc, bpc, perplexity, ler, exact, mae, rmse, r2; the first one "
          "chooses the best epoch (default: metrics of the loss)");
}

void take_task(Network& network, const TaskText& options, const std::string& command) {
  (void)parse_task(options, command);
  TaskText& task = network.identity().task;
  if (options.loss) task.loss = options.loss;
  if (options.metrics) task.metrics = options.metrics;
}

void add_data_flags(FlagSet& set, DataOptions& options, bool required) {
  set.group("Data").value(options.data, "data,d", "FILE", "HDF5 data set with groups of x and y");
  if (required) set.required();
  set.value(options.split, "split", "GROUP", "the group of the data set to read")
      .value(options.batch, "batch,b", "SAMPLES", {1, 1 << 20}, "samples in a batch");
}

std::shared_ptr<const Dataset> open_any_data(const std::string& path, const std::string& group, bool labels,
                                             LabelType label_type) {
  Hdf5DatasetOptions options;
  // Each rank reads only its share of the rows. Blocks would contain mostly rows of other ranks.
  options.by_rows = launched().ranks > 1;
  options.split = group;
  options.labels = labels;
  options.label_type = label_type;
  return std::make_shared<Hdf5Dataset>(path, options);
}

std::shared_ptr<const Dataset> open_network_data(Network& network, const std::string& path,
                                                 const std::string& group, Labels labels,
                                                 const std::string& command) {
  Hdf5DatasetOptions options;
  options.by_rows = launched().ranks > 1;
  options.split = group;
  const Task task = network.task();
  options.label_type = task.labels();
  // A single output is not a list of classes. `check_task` names the losses for it.
  options.classes = takes_classes(task.loss) && network.classes() > 1 ? network.classes() : 0;
  options.labels = labels != Labels::none;
  options.may_lack_labels = labels == Labels::if_there;
  options.sample_shape = network.identity().sample_shape;
  auto data = naming_flags([&] { return std::make_shared<Hdf5Dataset>(path, options); });
  // From the coarsest difference to the finest: shapes, vocabulary, class names, normalisation.
  check_fits(network, *data, command);
  take_tokenizer(network, *data, path, command);
  if (takes_classes(task.loss)) take_class_names(network, *data, command);
  take_sample_notes(network, *data, command);
  return data;
}

RunningNetwork check_running(const std::string& checkpoint, const DataOptions& data, const TaskText* task,
                             Labels labels, const PlannedFiles& planned, const std::string& command) {
  RunningNetwork out{planned.network(checkpoint), nullptr};
  if (!out.network) {
    // The task of an unknown network is unknown too, unless --loss names it. Numbers accept every label.
    const bool chosen = task != nullptr && task->loss;
    const LabelType type = chosen ? parse_task(*task, command).labels() : LabelType::numbers;
    out.data = open_any_data(data.data, data.split, labels == Labels::needed, type);
    return out;
  }
  Network& network = *out.network;
  if (task != nullptr) take_task(network, *task, command);
  out.data = open_network_data(network, data.data, data.split, labels, command);
  if (labels == Labels::needed) check_task(network, *out.data, command);
  // Ranges of a planned checkpoint are chosen when its phase runs.
  if (!planned.holds(checkpoint)) check_calibrated(network, command);
  return out;
}

std::string sample_noun(const Dataset& data) {
  if (data.token_ids()) return "windows";
  return data.sample_shape().size() == 3 ? "images" : "samples";
}

}  // namespace fq::cli
