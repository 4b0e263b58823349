#include "fakequant/cli/data.h"

#include "fakequant/cli/class_names.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/task.h"
#include "fakequant/cli/text/network_tokenizer.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/log.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/loop/detail/sample_notes.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::cli {

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
  const Task task = task_of(network);
  options.label_type = task.labels();
  // One output is no list of classes: `check_task` tells which loss takes it.
  options.classes = takes_classes(task.loss) && network.classes() > 1 ? network.classes() : 0;
  options.labels = labels != Labels::none;
  options.may_lack_labels = labels == Labels::if_there;
  options.sample_shape = fq::detail::whole_values<std::int64_t>(network.identity.at("sample_shape"));
  auto data = naming_flags([&] { return std::make_shared<Hdf5Dataset>(flags.required("data"), options); });
  check_fits(network, *data, flags.command());
  take_tokenizer(network, *data, flags.required("data"), flags.command());
  if (takes_classes(task.loss)) take_class_names(network, *data, flags.command());
  const std::string doubt = fq::detail::take_sample_notes(network.identity, *data, flags.command());
  if (!doubt.empty()) log(LogLevel::warning, doubt);
  return data;
}

}  // namespace fq::cli
