#pragma once

/// Scores, outputs and codes of a network on a data set.
///
///     const Evaluation found = evaluate(network, data);
///     std::cout << 100 * found.accuracy << " % right\n";
///
///     PredictionParts parts(network, {.codes = true},
///                           [](const StateDict& part) { save_state("predictions.h5", part, "predictions");
///                           });
///     while (const auto next = loader.next())
///       parts.add(next->x, network.module()(Variable(next->x)).tensor());
///     parts.finish();

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

#include "fakequant/core/io/state_dict.h"
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

struct PredictionOptions {
  bool inputs = false;  ///< adds dataset x, the samples
  bool codes = false;   ///< adds codes/NAME for each activation quantizer
  std::int64_t part_bytes = std::numeric_limits<std::int64_t>::max();  ///< size at which a part ends
};

/// Collects predictions in parts. Codes are recorded on this thread while the object lives.
///
/// A part has logits [N, classes] and the datasets of the options, in logical order. With codes, attribute
/// `batch` is the number of samples in a batch, and `batch_axes` has the axis of the samples if it is not
/// axis 0; null for codes that do not depend on the samples, which are stored once.
class PredictionParts {
 public:
  PredictionParts(const Network& network, const PredictionOptions& options,
                  std::function<void(const StateDict&)> use);
  ~PredictionParts();
  PredictionParts(const PredictionParts&) = delete;  // records
  PredictionParts& operator=(const PredictionParts&) = delete;

  /// Adds a batch. `x` may be undefined without inputs and codes.
  void add(const Tensor& x, const Tensor& logits);
  /// Passes on the last part.
  void finish();

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

/// Codes of activations and scores of two networks on the same samples.
struct FoldChange {
  std::int64_t codes = 0, different = 0;
  bool accuracy = false;  ///< whether samples have one class each
  Evaluation before = {}, after = {};
};

/// Compares a network with the same network folded. Records on this thread while the object lives.
class FoldComparison {
 public:
  /// Throws ArgumentError for data that does not fit the task and for a quantizer without a range.
  FoldComparison(const Network& before, const Network& after, const Dataset& data,
                 const MetricOptions& options = {});
  ~FoldComparison();
  FoldComparison(const FoldComparison&) = delete;  // records
  FoldComparison& operator=(const FoldComparison&) = delete;

  /// Runs the folded network on a batch, for which `before` gave these logits.
  void add(const Batch& samples, const Tensor& logits);
  [[nodiscard]] FoldChange change() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq
