#pragma once

/// Task: what a network is trained for, by the flags --loss and --metrics, and kept in its checkpoint.

#include <string>
#include <vector>

#include "fakequant/cli/network.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/losses.h"

namespace fq::cli {

struct Task {
  LossOptions loss;
  bool balanced = false;             ///< weights of classes by how many samples there are of each
  std::vector<std::string> metrics;  ///< as --metrics names them; none: `metrics_for`

  /// Whether the loss is plain cross entropy.
  [[nodiscard]] bool standard() const;
  /// Whether the labels of a sample are a sequence without places: those of ctc.
  [[nodiscard]] bool sequences() const;
  /// What y of a data set may be.
  [[nodiscard]] LabelType labels() const;
};

/// --loss and --metrics.
void add_task_flags(FlagSet& set);
/// Of the network's checkpoint, plain cross entropy where it has none. Throws ArgumentError naming the
/// nearest word for what is no task.
[[nodiscard]] Task task_of(const Network& network);
/// The same of flags, if they are there.
[[nodiscard]] Task read_task(const Flags& flags);
/// Flags that are given become the network's.
void take_task(Network& network, const Flags& flags);

/// Whether a sample has one class: then there is an accuracy, and names of classes.
[[nodiscard]] bool one_class_each(const Task& task, const Dataset& data);
/// The loss of a run; empty for the standard one, which the library has built in. Weights "balanced" are of
/// the labels of `data`: the number of samples over classes times those of the class.
[[nodiscard]] Loss loss_of(const Task& task, const Dataset& data, double label_smoothing = 0);
/// Those that are asked for, else those of the task: none beside the accuracy, or f1, auc and accuracy of yes
/// and no, iou and accuracy of dense labels, of those of tokens bpc and accuracy, ler and exact of sequences,
/// rmse, mae and r2 of numbers.
[[nodiscard]] std::vector<std::string> metrics_for(const Task& task, const Dataset& data);
/// How many outputs a model has to have for the labels: classes, or numbers of a sample.
[[nodiscard]] std::int64_t outputs_for(const Task& task, const Dataset& data);
/// Whether they are of places in a sample: the outputs have axes behind the classes or channels.
[[nodiscard]] bool dense_labels(const Task& task, const Dataset& data);
/// Throws ArgumentError when the network's outputs and the labels of the data are not what the loss takes,
/// naming one that does where there is one.
void check_task(Network& network, const Dataset& data, const std::string& function);

}  // namespace fq::cli
