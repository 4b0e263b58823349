#pragma once

/// Outputs of a model for the batches of a loader, and their scores.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/variable.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/metrics.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::detail {

/// Returns whether outputs are [N, C] and labels are class indices [N].
[[nodiscard]] bool is_classes(const Tensor& outputs, const Tensor& labels);

/// Returns the predicted class of each row of `logits` [N, C]: i64 [N] on the device of the logits. Does not
/// wait for a GPU.
[[nodiscard]] Tensor predicted_classes(const Tensor& logits);
/// Returns how many of the classes `predicted`, i64 [N] on the host, are the label.
[[nodiscard]] std::int64_t count_equal(const Tensor& predicted, const Tensor& labels);

/// Sums the scores of batches in double, in the order of the batches.
class ScoreSum {
 public:
  /// An empty loss is cross entropy.
  explicit ScoreSum(Loss loss = {}, const std::vector<std::string>& metrics = {},
                    const MetricOptions& options = {});

  /// Adds a batch: logits [N, C] and labels [N], or tensors that the loss accepts. Throws NumericError for a
  /// loss that is NaN.
  void add(const Variable& logits, const Tensor& labels);
  /// Returns the means over all samples, zeros without samples.
  [[nodiscard]] Evaluation mean() const;

 private:
  /// Throws NumericError naming the sample.
  [[noreturn]] void refuse_nan(const Tensor& outputs) const;

  Loss of_;
  std::vector<std::pair<std::string, std::unique_ptr<Metric>>> metrics_;
  double loss_ = 0;
  bool has_classes_ = false;  // whether labels were classes
  std::int64_t correct_ = 0, count_ = 0;
};

/// Receives the outputs of a batch and its labels, which may be undefined. Returns false to end the epoch.
using VisitOutput = std::function<bool(const Tensor& output, const Tensor& labels)>;

/// Calls `visit` with each batch of epoch 0, in order and in evaluation mode, until `visit` returns false on
/// any rank. Returns whether all batches were visited. With several ranks, all ranks make the call. Each rank
/// runs its own batches and visits the batches of all ranks.
bool visit_outputs(Module& model, DataLoader& loader, Communicator* ranks, const VisitOutput& visit);

}  // namespace fq::detail
