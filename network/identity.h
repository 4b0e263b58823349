#pragma once

/// Identity: the description of a network in its checkpoint, attribute `model`.
///
///     {"model": {"name": "cnn", "nodes": [..]}, "sample_shape": [1, 28, 28], "classes": 10, "folded": false,
///      "quantization": null}
///
/// Optional keys: "dense", "class_names", "tokenizer", "inputs" and "task". The JSON text of an identity is
/// part of the file format: `to_json` writes every key as all earlier versions did.
///
/// Task: loss and metrics of a network, which the identity keeps as text.
///
///     const Task task = parse_task({.loss = "huber,delta=2", .metrics = "mae,r2"}, "train");
///     TrainerOptions options;
///     options.objective.loss = task_loss(task, *data);
///     options.objective.metrics = task_metrics(task, *data);

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/train/data/dataset.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/losses.h"

namespace fq {

/// Loss and metrics of a network as text, "huber,delta=2" and "mae,r2". `parse_task` reads them.
struct TaskText {
  std::optional<std::string> loss = {};
  std::optional<std::string> metrics = {};
};

/// The architecture of a network, its data and its quantization config, without values.
struct Identity {
  ModelSpec model;
  Shape sample_shape;          ///< of one sample, without the batch
  std::int64_t classes = 0;    ///< outputs of a sample, or of each position if `dense`; 0 if unknown
  bool dense = false;          ///< whether outputs have axes after the classes
  bool folded = false;         ///< whether batch norm is folded
  std::string quantization{};  ///< the quantization config as JSON text; empty for a float network
  std::vector<std::string> class_names = {};  ///< none, or `classes` names
  std::string tokenizer = {};                 ///< text of a tokenizer.json; empty if there is none
  SampleNotes inputs = {};                    ///< how the samples of the training data were made
  TaskText task = {};

  /// Throws ArgumentError `[identity] key: ..` for a missing or unknown key, a value of another type, a model
  /// that ModelSpec rejects, and a number of class names other than `classes`.
  [[nodiscard]] static Identity from_json(const nlohmann::json& json);
  [[nodiscard]] nlohmann::json to_json() const;

  [[nodiscard]] bool quantized() const noexcept { return !quantization.empty(); }
  /// Returns the quantization config. Throws ArgumentError for a float network.
  [[nodiscard]] QuantConfig config() const;
  /// Returns the preset that the quantization config names; empty without.
  [[nodiscard]] std::string preset() const;
  /// Sets the quantization config. Rules become lists: JSON text sorts the keys of objects, and the order of
  /// rules counts.
  void set_quantization(nlohmann::ordered_json config);
};

/// Compares how samples of `data` were made with the notes of the network. Returns a warning for other scale,
/// mean or deviation, else an empty text. Notes that one side lacks are not compared. Throws ArgumentError
/// for other columns.
[[nodiscard]] std::string check_sample_notes(const SampleNotes& own, const Dataset& data,
                                             std::string_view function);
/// Calls `check_sample_notes`, then copies notes of the data that `own` lacks.
[[nodiscard]] std::string take_sample_notes(SampleNotes& own, const Dataset& data, std::string_view function);

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
