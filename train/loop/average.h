#pragma once

/// Averages of weights over training, which often generalize better than the last weights (Polyak and
/// Juditsky 1992), and statistics of batch norms for given weights.
///
///     WeightAverage average(model, 0.999);
///     while (train_step()) average.update();
///     const AverageScope averages(&average);    // the model holds the averages from here on
///     reestimate_batch_norm(model, loader, 50);  // optional
///     const Evaluation result = evaluate(model, test);
///
/// The Trainer does this with UpdateOptions::average_decay and BatchNormOptions::reestimate_bn.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/variable.h"
#include "fakequant/train/data/loader.h"

namespace fq {

class Module;

/// Exponential moving averages of a model's parameters and floating-point buffers (running statistics).
/// Exponential moving averages of a model's parameters and floating-point buffers (running statistics).
///
/// After each step average += (1 - d) * (value - average), with d = min(decay, (1 + t) / (10 + t)) in update
/// t = 1, 2, .. The small d of the first updates makes the averages forget the initial values soon. The
/// averages need as much memory as the parameters. The model must outlive the object and keep its parameters.
class WeightAverage {
 public:
  /// Begins with the current values as averages. Throws ArgumentError unless 0 <= decay < 1.
  WeightAverage(const Module& model, double decay);
  WeightAverage(const WeightAverage&) = delete;  // belongs to one model
  WeightAverage& operator=(const WeightAverage&) = delete;

  /// Updates the averages with the current values of the model. Throws ArgumentError while swapped.
  void update();
  /// Exchanges the model's values and the averages: swap, evaluate, swap back (AverageScope does both).
  /// Increases the versions of the values, so that weight codes are recomputed.
  void swap();
  /// Returns whether the model holds the averages now.
  [[nodiscard]] bool swapped() const noexcept { return swapped_; }

  /// Returns the values that the model does not hold now, as `parameters/<name>` and `buffers/<name>`, and
  /// attribute `updates`. A parameter with several names is there under each name. Tensors are shared, not
  /// copied.
  [[nodiscard]] StateDict state_dict() const;
  /// Sets the averages from `state_dict`. Throws ArgumentError if names or shapes differ; then nothing has
  /// changed.
  void load_state(const StateDict& state);

 private:
  [[nodiscard]] std::vector<Tensor> values() const;

  std::vector<Variable> parameters_;
  std::vector<Tensor> buffers_;
  std::vector<std::pair<std::string, std::size_t>> names_;  // names of averages_, with aliases
  std::vector<Tensor> averages_;
  double decay_;
  std::int64_t updates_ = 0;
  bool swapped_ = false;
};

/// Swaps the averages into the model until the end of the block. A null pointer does nothing.
class AverageScope {
 public:
  explicit AverageScope(WeightAverage* average) : average_(average) {
    if (average_ != nullptr) average_->swap();
  }
  ~AverageScope() {
    if (average_ != nullptr) average_->swap();
  }
  AverageScope(const AverageScope&) = delete;  // tied to its block
  AverageScope& operator=(const AverageScope&) = delete;

 private:
  WeightAverage* average_;
};

/// Returns the number of batch norms of the model that are not frozen.
[[nodiscard]] std::int64_t live_batch_norms(Module& model);

/// Replaces the running statistics of the batch norms that are not frozen by the mean statistics of the next
/// `batches` batches of the loader (momentum None in PyTorch). Running statistics lag behind weights that
/// jump between codes, which costs accuracy with few bits (Nagel et al. 2022). Other modules are in
/// evaluation mode. Returns the number of batch norms.
///
/// Throws ArgumentError for fewer than one batch, and for more batches than an epoch has.
std::int64_t reestimate_batch_norm(Module& model, DataLoader& data, std::int64_t batches);

}  // namespace fq
