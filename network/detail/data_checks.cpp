#include "fakequant/network/detail/data_checks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/log.h"
#include "fakequant/core/tape.h"

namespace fq {
namespace {

std::string last_layer(const Network& network) { return network.identity().model.nodes().back().name; }

// Returns the values of --loss that can train a network with one output on these labels, for a message.
std::string fitting_loss(const Dataset& data) {
  const Tensor y = data.labels();
  if (!y.defined() || is_floating(y.dtype())) return "mse, l1 or huber for numbers, bce for several labels";
  return data.classes() == 2 ? "bce" : "mse, l1 or huber for a number, bce for yes or no";
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::ranges::sort(names);
  return names;
}

// Throws for the same names in another order, because every label would then mean another class. Other names
// get only a warning: they may be translations or synonyms.
void compare_names(const std::vector<std::string>& own, const std::vector<std::string>& given,
                   const std::string& function) {
  const auto [here, there] = std::ranges::mismatch(own, given);
  if (here == own.end()) return;
  FQ_CHECK(
      sorted(own) != sorted(given), function,
      "class {} is '{}' in the data and '{}' in the network, in another order: number the classes of the "
      "data like the network",
      here - own.begin(), *there, *here);
  log(LogLevel::warning, fmt::format("[{}] class {} is '{}' in the data and '{}' in the network: check that "
                                     "the classes match. The network's names are shown",
                                     function, here - own.begin(), *there, *here));
}

}  // namespace

void check_classifies(const Network& network, const std::string& function) {
  FQ_CHECK(network.classes() >= 2 && takes_classes(network.task().loss), function,
           "the network is not a classifier, which is required here: its last "
           "layer, '{}', does not give one number for each class",
           last_layer(network));
}

void check_fits(const Network& network, const Dataset& data, const std::string& function) {
  const Shape& shape = network.identity().sample_shape;
  FQ_CHECK(data.sample_shape() == shape, function,
           "the samples are {}, the network takes {}: use other --data or another network",
           to_string(data.sample_shape()), to_string(shape));
  const bool classifies = takes_classes(network.task().loss) && network.classes() != 1;
  FQ_CHECK(!classifies || data.classes() <= network.classes(), function,
           "the data has {} classes, the network {} outputs. Use other --data or another network",
           data.classes(), network.classes());
}

void take_class_names(Network& network, const Dataset& data, const std::string& function) {
  const auto& given = data.class_names();
  const std::int64_t outputs = network.identity().classes;
  // A network without a class count may predict dense labels or numbers. Its labels have more than one axis,
  // and the names of the data then do not belong to single outputs.
  if (given.empty() || (outputs == 0 && data.labels().rank() > 1)) return;
  if (std::int64_t(given.size()) != outputs)
    return log(
        LogLevel::warning,
        fmt::format("[{}] the data names {} classes, the network has {} outputs: its names are not used",
                    function, given.size(), outputs));
  const auto& own = network.identity().class_names;
  if (own.empty())
    network.identity().class_names = given;
  else
    compare_names(own, given, function);
}

void check_task(const Network& network, const Dataset& data, const std::string& function) {
  const Task task = network.task();
  const std::string last = last_layer(network);
  if (!data.labels().defined()) return;
  FQ_CHECK(!one_class_each(task, data) || network.classes() != 1, function,
           "the last layer, '{}', has one output, whose softmax is always 1: cross entropy cannot train "
           "it. Use --loss {}, or two outputs and labels of at least two classes in --data (attribute "
           "classes)",
           last, fitting_loss(data));
  FQ_CHECK(!one_class_each(task, data) || network.classes() > 1, function,
           "the last layer, '{}', does not give one number for each class, and --data has one class for each "
           "sample: cross entropy requires one number for each class",
           last);
  const Shape outputs = network.output_shape();
  const NoGrad no_grad;
  const std::vector<std::int64_t> first{0};
  // The loss itself checks whether outputs and labels fit: it runs once on zeros and the label of the first
  // sample. An empty loss is plain cross entropy, whose conditions are checked above.
  const Tensor labels = data.read(first).y;
  try {
    const Loss loss = task_loss(task, data);
    if (loss) (void)loss(Variable(Tensor::zeros(outputs)), labels);
  } catch (const ArgumentError& error) {
    throw ArgumentError(
        fmt::format("[{}] the network gives {} for a sample, y of the data is {} {}: {}", function,
                    to_string(Shape(outputs.begin() + 1, outputs.end())), name(labels.dtype()),
                    to_string(Shape(labels.shape().begin() + 1, labels.shape().end())), error.what()));
  }
}

void take_sample_notes(Network& network, const Dataset& data, const std::string& function) {
  const std::string warning = take_sample_notes(network.identity().inputs, data, function);
  if (!warning.empty()) log(LogLevel::warning, warning);
}

}  // namespace fq
