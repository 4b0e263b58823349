#pragma once

/// What a model says about data, and how often it is right.

#include <atomic>
#include <cstdint>

#include "fakequant/train/data/loader.h"

namespace fq {

class Module;

struct Evaluation {
  double loss = 0;         ///< mean cross-entropy, without label smoothing
  double accuracy = 0;     ///< correct / count, 0 to 1; 0 of no samples
  std::int64_t count = 0;  ///< samples
  std::int64_t correct = 0;
  bool stopped = false;  ///< by the flag, before the end: not of all samples
};

/// Runs the loader's epoch 0 in evaluation mode, without a tape, and puts the model's mode back. The bits do
/// not depend on the number of threads. A model in evaluation mode may be evaluated by several threads at
/// once, each with a loader of its own. Stops after the current batch when `*stop` becomes true. Throws
/// ArgumentError for data without labels, labels out of range and samples that do not fit the model.
[[nodiscard]] Evaluation evaluate(Module& model, DataLoader& loader, const std::atomic<bool>* stop = nullptr);

/// The model's outputs [N, ..] for the loader's epoch 0, in its order: f32, row-major.
/// As `evaluate`; data needs no labels.
[[nodiscard]] Tensor predict(Module& model, DataLoader& loader);

/// The class that each row of `logits` [N, C] is largest at, the first of equal ones: i64 [N], on the host;
/// -1 for a row with a NaN.
[[nodiscard]] Tensor answers(const Tensor& logits);

/// Rows of `logits` [N, C] whose answer is the label.
[[nodiscard]] std::int64_t count_correct(const Tensor& logits, const Tensor& labels);

}  // namespace fq
