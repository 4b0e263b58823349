#include "fakequant/cli/task.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/cli/flags/named_values.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/tape.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/train/metrics.h"

namespace fq::cli {
namespace {

using nlohmann::json;

constexpr const char* kTask = "task";

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

Task parse_task(const std::string& loss, const std::string& metrics, const std::string& function) {
  const NamedValues given(function, "loss", loss.empty() ? loss_kinds().front() : loss, loss_kinds(),
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
  task.metrics = parts_of(metrics, ',');
  for (const auto& name : task.metrics) (void)make_metric(name);
  return task;
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

std::string fitting_loss(const Dataset& data) {
  if (!integers(data)) return "mse, l1 or huber for numbers, bce for several labels";
  return data.classes() == 2 ? "bce" : "mse, l1 or huber for a number, bce for yes or no";
}

}  // namespace

bool Task::standard() const {
  return takes_classes(loss) && loss.class_weights.empty() && !balanced && !loss.ignore_index;
}

bool Task::sequences() const { return loss.kind == "ctc"; }

LabelType Task::labels() const {
  return takes_classes(loss) || sequences() ? LabelType::integers : LabelType::numbers;
}

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
  return parse_task(flags.text("loss"), flags.text("metrics"), flags.command());
}

Task task_of(const Network& network) {
  const auto found = network.identity.value(kTask, json::object());
  return parse_task(found.value("loss", ""), found.value("metrics", ""), kTask);
}

void take_task(Network& network, const Flags& flags) {
  (void)read_task(flags);
  for (const char* name : {"loss", "metrics"})
    if (flags.given(name)) network.identity[kTask][name] = flags.text(name);
}

bool one_class_each(const Task& task, const Dataset& data) {
  return takes_classes(task.loss) && label_shape(data).empty();
}

Loss loss_of(const Task& task, const Dataset& data, double label_smoothing) {
  if (task.standard() && one_class_each(task, data)) return {};
  LossOptions options = task.loss;
  FQ_CHECK(label_smoothing == 0 || takes_classes(options), "train",
           "--label-smoothing is for --loss cross_entropy");
  options.label_smoothing = label_smoothing;
  if (task.balanced) options.class_weights = balanced_weights(data, outputs_for(task, data));
  return make_loss(options);
}

std::vector<std::string> metrics_for(const Task& task, const Dataset& data) {
  if (task.sequences()) return sequence_metrics(task);
  if (!task.metrics.empty() || one_class_each(task, data)) return task.metrics;
  if (takes_classes(task.loss) && data.token_ids()) return {"bpc", "accuracy"};
  if (takes_classes(task.loss) || task.loss.kind == "dice") return {"iou", "accuracy"};
  if (task.loss.kind == "bce" || task.loss.kind == "focal") return {"f1", "auc", "accuracy"};
  return {"rmse", "mae", "r2"};
}

std::int64_t outputs_for(const Task& task, const Dataset& data) {
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

void check_task(Network& network, const Dataset& data, const std::string& function) {
  const Task task = task_of(network);
  const auto& nodes = network.identity.at("model").at("nodes");
  const std::string last = nodes.back().value("name", std::string());
  if (!data.labels().defined()) return;
  FQ_CHECK(
      !one_class_each(task, data) || network.classes() != 1, function,
      "the last layer, '{}', has one output, whose softmax is always 1: cross entropy has nothing to tell "
      "there. Give --loss {}, or two outputs and labels of two classes or more in --data (its attribute "
      "classes says how many)",
      last, fitting_loss(data));
  FQ_CHECK(!one_class_each(task, data) || network.classes() > 1, function,
           "the last layer, '{}', does not give one number for each class, and --data has one class for each "
           "sample: cross entropy takes a list of numbers for each",
           last);
  const auto graph = trace(*network.module, network.input_shape());
  const Shape outputs = graph.values.at(static_cast<std::size_t>(graph.output)).shape;
  const NoGrad no_grad;
  const std::vector<std::int64_t> first{0};
  const Tensor labels = data.read(first).y;
  try {
    const Loss loss = loss_of(task, data);
    if (loss) (void)loss(Variable(Tensor::zeros(outputs)), labels);
  } catch (const ArgumentError& error) {
    throw ArgumentError(
        fmt::format("[{}] the network gives {} for a sample, y of the data is {} {}: {}", function,
                    to_string(Shape(outputs.begin() + 1, outputs.end())), name(labels.dtype()),
                    to_string(Shape(labels.shape().begin() + 1, labels.shape().end())), error.what()));
  }
}

}  // namespace fq::cli
