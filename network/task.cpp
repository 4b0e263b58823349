#include "fakequant/network/task.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/network/detail/named_values.h"
#include "fakequant/train/metrics.h"

namespace fq {
namespace {

/// What may follow the name of a loss.
std::vector<std::string> keys_of(const std::string& loss) {
  if (loss == "cross_entropy") return {"weights", "ignore"};
  if (loss == "bce") return {"positive"};
  if (loss == "focal") return {"alpha", "gamma"};
  if (loss == "dice") return {"smooth"};
  if (loss == "ctc") return {"blank", "ignore", "zero_infinity"};
  if (loss == "huber") return {"delta"};
  return {};
}

/// [classes]: the number of samples over classes times those of each; 0 for a class that has none.
std::vector<double> balanced_weights(const Dataset& data, std::int64_t classes) {
  std::vector<double> counts(static_cast<std::size_t>(classes), 0.0);
  const auto labels = data.labels().to(DType::i64).to_vector<std::int64_t>();
  double all = 0;
  for (const auto label : labels) {
    if (label < 0 || label >= classes) continue;
    ++counts[static_cast<std::size_t>(label)];
    ++all;
  }
  for (double& count : counts) count = count == 0 ? 0 : all / (static_cast<double>(classes) * count);
  return counts;
}

/// Of one sample.
Shape label_shape(const Dataset& data) {
  const Tensor y = data.labels();
  return y.defined() ? Shape(y.shape().begin() + 1, y.shape().end()) : Shape{};
}

bool integers(const Dataset& data) {
  const Tensor y = data.labels();
  return y.defined() && !is_floating(y.dtype());
}

/// How many classes integers that are no list of classes are of: as the names say, or by the largest.
std::int64_t dense_classes(const Task& task, const Dataset& data) {
  if (!data.class_names().empty()) return static_cast<std::int64_t>(data.class_names().size());
  std::int64_t most = 0;
  for (const auto label : data.labels().to(DType::i64).to_vector<std::int64_t>())
    if (label != task.loss.ignore_index.value_or(-100)) most = std::max(most, label);
  return most + 1;
}

bool yes_or_no(const Task& task) {
  return task.loss.kind == "bce" || task.loss.kind == "focal" || task.loss.kind == "dice";
}

/// Names of metrics know the blank, where it is another class than the first.
std::vector<std::string> sequence_metrics(const Task& task) {
  std::vector<std::string> names =
      task.metrics.empty() ? std::vector<std::string>{"ler", "exact"} : task.metrics;
  for (auto& name : names)
    if (task.loss.blank != 0 && (name == "ler" || name == "exact")) name += std::to_string(task.loss.blank);
  return names;
}

}  // namespace

bool Task::standard() const {
  return takes_classes(loss) && loss.class_weights.empty() && !balanced && !loss.ignore_index;
}

bool Task::sequences() const { return loss.kind == "ctc"; }

LabelType Task::labels() const {
  return takes_classes(loss) || sequences() ? LabelType::integers : LabelType::numbers;
}

Task parse_task(const TaskText& text, const std::string& function) {
  const std::string loss = text.loss.value_or(""), metrics = text.metrics.value_or("");
  const detail::NamedValues given(function, "loss", loss.empty() ? loss_kinds().front() : loss, loss_kinds(),
                                  keys_of);
  Task task;
  LossOptions& options = task.loss;
  options.kind = given.name();
  task.balanced = given.text("weights") == "balanced";
  if (!task.balanced) options.class_weights = given.numbers("weights");
  if (given.has("ignore")) options.ignore_index = given.whole("ignore", 0);
  options.positive_weight = given.number("positive", options.positive_weight);
  options.alpha = given.number("alpha", options.alpha);
  options.gamma = given.number("gamma", options.gamma);
  options.delta = given.number("delta", options.delta);
  options.smooth = given.number("smooth", options.smooth);
  options.blank = given.whole("blank", options.blank);
  options.zero_infinity = given.on("zero_infinity");
  (void)make_loss(options);
  if (metrics.empty()) return task;
  task.metrics = detail::parts_of(metrics, ',');
  for (const auto& name : task.metrics) (void)make_metric(name);
  return task;
}

bool one_class_each(const Task& task, const Dataset& data) {
  return takes_classes(task.loss) && label_shape(data).empty();
}

Loss task_loss(const Task& task, const Dataset& data, double label_smoothing) {
  if (task.standard() && one_class_each(task, data)) return {};
  LossOptions options = task.loss;
  FQ_CHECK(label_smoothing == 0 || takes_classes(options), "train",
           "--label-smoothing is for --loss cross_entropy");
  options.label_smoothing = label_smoothing;
  if (task.balanced) options.class_weights = balanced_weights(data, task_outputs(task, data));
  return make_loss(options);
}

std::vector<std::string> task_metrics(const Task& task, const Dataset& data) {
  if (task.sequences()) return sequence_metrics(task);
  if (!task.metrics.empty() || one_class_each(task, data)) return task.metrics;
  if (takes_classes(task.loss) && data.token_ids()) return {"bpc", "accuracy"};
  if (takes_classes(task.loss) || task.loss.kind == "dice") return {"iou", "accuracy"};
  if (task.loss.kind == "bce" || task.loss.kind == "focal") return {"f1", "auc", "accuracy"};
  return {"rmse", "mae", "r2"};
}

std::int64_t task_outputs(const Task& task, const Dataset& data) {
  const Shape shape = label_shape(data);
  if (task.sequences()) return std::max(dense_classes(task, data), task.loss.blank + 1);
  if (takes_classes(task.loss)) return shape.empty() ? data.classes() : dense_classes(task, data);
  if (data.classes() > 0) return yes_or_no(task) && data.classes() > 2 ? data.classes() : 1;
  if (yes_or_no(task) && integers(data) && shape.size() > 1) return dense_classes(task, data);
  return shape.empty() ? 1 : shape[0];
}

bool dense_labels(const Task& task, const Dataset& data) {
  return task.sequences() || label_shape(data).size() > (takes_classes(task.loss) ? 0 : 1);
}

}  // namespace fq
