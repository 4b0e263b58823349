#pragma once

/// Running a network over a data set, batch by batch, in evaluation mode.

#include <functional>
#include <memory>

#include "fakequant/cli/tables/output.h"
#include "fakequant/core/variable.h"
#include "fakequant/network/network.h"
#include "fakequant/train/loop/detail/score_sum.h"

namespace fq::cli {

/// A score while batches come in, by the network's task on that data.
class Scoring {
 public:
  Scoring(const Network& network, const Dataset& data);

  void add(const Tensor& logits, const Tensor& labels) { sum_.add(Variable(logits), labels); }
  [[nodiscard]] Evaluation score() const { return sum_.mean(); }
  /// Whether samples have a class each, so that there is an accuracy.
  [[nodiscard]] bool accuracy() const noexcept { return accuracy_; }

 private:
  fq::detail::ScoreSum sum_;
  bool accuracy_;
};

/// Calls `visit` with the logits and the labels of each batch, in order, which the processes of the run share
/// out. Stops with Interrupted after a signal.
void for_each_output(Network& network, std::shared_ptr<const Dataset> data, std::int64_t batch,
                     const std::function<void(const Tensor& logits, const Tensor& labels)>& visit,
                     Output& output, const std::string& label);
/// The same with the samples of each batch, by this process alone.
void for_each_batch(Network& network, std::shared_ptr<const Dataset> data, std::int64_t batch,
                    const std::function<void(const Batch&, const Variable&)>& visit, Output& output,
                    const std::string& label);

/// Throws ArgumentError naming the first enabled quantizer that was not calibrated.
void check_calibrated(Network& network, const std::string& function);

/// Bytes that the parameters take in the deployed network: packed codes of quantized weights, 4 bytes for
/// others.
[[nodiscard]] std::int64_t weight_bytes(Network& network);

}  // namespace fq::cli
