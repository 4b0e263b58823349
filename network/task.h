#pragma once

/// Task: loss and metrics of a network.
///
///     const Task task = parse_task({.loss = "huber,delta=2", .metrics = "mae,r2"}, "train");
///     TrainerOptions options;
///     options.loss = task_loss(task, *data);
///     options.metrics = task_metrics(task, *data);

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/network/identity.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/losses.h"

namespace fq {

struct Task {
  LossOptions loss;
  bool balanced = false;             ///< class weights are inverse to the number of samples of each class
  std::vector<std::string> metrics;  ///< names of train/metrics.h; empty for `task_metrics`

  /// Whether the loss is plain cross entropy.
  [[nodiscard]] bool standard() const;
  /// Whether the loss is ctc. Labels are then sequences without positions.
  [[nodiscard]] bool sequences() const;
  /// The type of y in a data set.
  [[nodiscard]] LabelType labels() const;
};

/// Reads the text of an identity or of the flags --loss and --metrics; cross entropy without text. Throws
/// ArgumentError with the nearest word for an unknown loss, option or metric.
[[nodiscard]] Task parse_task(const TaskText& text, const std::string& function);

/// Whether each sample has one class. Only then there is an accuracy.
[[nodiscard]] bool one_class_each(const Task& task, const Dataset& data);
/// Returns the loss of a run; empty for plain cross entropy, which the Trainer has built in. Balanced weights
/// are (number of samples / classes) / (samples of the class) over the labels of `data`.
[[nodiscard]] Loss task_loss(const Task& task, const Dataset& data, double label_smoothing = 0);
/// Returns the metrics of the task or, without any, the default metrics of its labels: none for one class a
/// sample; f1, auc and accuracy for yes and no; iou and accuracy for dense labels; bpc and accuracy for
/// tokens; ler and exact for sequences; rmse, mae and r2 for numbers.
[[nodiscard]] std::vector<std::string> task_metrics(const Task& task, const Dataset& data);
/// Returns the number of outputs that a model needs for the labels: classes, or numbers of a sample.
[[nodiscard]] std::int64_t task_outputs(const Task& task, const Dataset& data);
/// Whether labels belong to positions in a sample: then outputs have axes after the classes or channels.
[[nodiscard]] bool dense_labels(const Task& task, const Dataset& data);

}  // namespace fq
