#include "fakequant/cli/data.h"

#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/text/network_tokenizer.h"
#include "fakequant/network/data_checks.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::cli {

void add_task_flags(FlagSet& set) {
  set.group("Task")
      .value("loss", "NAME",
             "cross_entropy (with ,weights=balanced or W:W:.., ,ignore=LABEL), bce (,positive=WEIGHT), focal "
             "(,alpha=A,gamma=G), dice (,smooth=S), ctc (,blank=CLASS,ignore=LABEL,zero_infinity=1), mse, l1 "
             "or huber (,delta=D) (default: of the checkpoint, "
             "cross_entropy)")
      .value("metrics", "LIST",
             "accuracy, top5, f1, recall, iou, auc, bpc, perplexity, ler, exact, mae, rmse, r2; the best "
             "epoch is by the "
             "first (default: "
             "what goes with the loss)");
}

Task read_task(const Flags& flags) {
  if (!flags.knows("loss")) return {};
  return parse_task({flags.text("loss"), flags.text("metrics")}, flags.command());
}

void take_task(Network& network, const Flags& flags) {
  (void)read_task(flags);
  TaskText& task = network.identity().task;
  if (flags.given("loss")) task.loss = flags.text("loss");
  if (flags.given("metrics")) task.metrics = flags.text("metrics");
}

std::shared_ptr<const Dataset> open_data(const Flags& flags, const std::string& group, std::int64_t classes,
                                         bool labels) {
  Hdf5DatasetOptions options;
  options.by_rows = launched().ranks > 1;
  options.split = group;
  options.classes = classes;
  options.labels = labels;
  options.label_type = flags.knows("loss") ? read_task(flags).labels() : LabelType::numbers;
  return std::make_shared<Hdf5Dataset>(flags.required("data"), options);
}

std::shared_ptr<const Dataset> open_data_for(Network& network, const Flags& flags, const std::string& group,
                                             Labels labels) {
  Hdf5DatasetOptions options;
  options.by_rows = launched().ranks > 1;
  options.split = group;
  const Task task = network.task();
  options.label_type = task.labels();
  // One output is no list of classes: `check_task` tells which loss takes it.
  options.classes = takes_classes(task.loss) && network.classes() > 1 ? network.classes() : 0;
  options.labels = labels != Labels::none;
  options.may_lack_labels = labels == Labels::if_there;
  options.sample_shape = network.identity().sample_shape;
  auto data = naming_flags([&] { return std::make_shared<Hdf5Dataset>(flags.required("data"), options); });
  check_fits(network, *data, flags.command());
  take_tokenizer(network, *data, flags.required("data"), flags.command());
  if (takes_classes(task.loss)) take_class_names(network, *data, flags.command());
  take_sample_notes(network, *data, flags.command());
  return data;
}

}  // namespace fq::cli
