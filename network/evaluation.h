#pragma once

/// Scores of a network by its task.
///
///     const Evaluation found = evaluate(network, data);
///     std::cout << 100 * found.accuracy << " % right\n";

#include <cstdint>
#include <memory>

#include "fakequant/core/variable.h"
#include "fakequant/network/network.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/metrics.h"

namespace fq {

/// Evaluates the network on a data set: loss, accuracy and metrics of its task. Throws ArgumentError for data
/// that does not fit (check_fits, check_task) and for a quantizer without a range.
[[nodiscard]] Evaluation evaluate(const Network& network, const std::shared_ptr<const Dataset>& data,
                                  std::int64_t batch_size = 64, const MetricOptions& options = {});

/// Sums scores batch by batch.
class Scoring {
 public:
  Scoring(const Network& network, const Dataset& data, const MetricOptions& options = {});
  ~Scoring();
  Scoring(const Scoring&) = delete;  // one sum
  Scoring& operator=(const Scoring&) = delete;

  void add(const Tensor& logits, const Tensor& labels);
  [[nodiscard]] Evaluation score() const;
  /// Whether samples have one class each, so that there is an accuracy.
  [[nodiscard]] bool accuracy() const noexcept { return accuracy_; }

 private:
  struct Sum;
  std::unique_ptr<Sum> sum_;
  bool accuracy_;
};

/// Returns the bytes of the parameters in the deployed network: packed codes of quantized weights, 4 bytes
/// for other numbers.
[[nodiscard]] std::int64_t weight_bytes(const Network& network);

}  // namespace fq
