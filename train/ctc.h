#pragma once

/// Sequences of labels without places: connectionist temporal classification (Graves et al. 2006), for
/// networks that read lines of text, speech and other signals.
///
///     TrainerOptions options;
///     options.objective.loss = [](const Variable& y, const Tensor& labels) { return losses::ctc(y, labels);
///     }; const Tensor read = ctc_decode(predict(model, test));  // i64 [N, L], -1 behind the last label

#include <cstdint>
#include <optional>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq {

namespace losses {

/// What ctc is told.
struct CtcOptions {
  std::int64_t blank = 0;  ///< the class that says nothing
  /// Fills the end of a row of labels, as negative ones and the blank do anyway; 255 of u8 labels.
  std::optional<std::int64_t> padding = {};
  Tensor lengths = {};  ///< i64 [N], places of the outputs that count, 0 to L; undefined for all
  /// Samples whose labels do not fit into their places count as 0, without a gradient, in place of infinity.
  bool zero_infinity = false;
};

/// The mean over samples of -log P(labels) / max(1, labels), P the probability of all ways to place the
/// labels in order, with blanks between equal neighbours; outputs [N, C, L] before their softmax, over C at
/// each of L places; labels of integers [N, S], or [N] of one each, a row filled at its end. The numbers of
/// PyTorch's ctc_loss of log_softmax, reduction "mean"; sums are in f64. Throws ArgumentError for other
/// shapes, labels that are no class, and labels behind the end of a row.
[[nodiscard]] Variable ctc(const Variable& outputs, const Tensor& labels, const CtcOptions& options = {});

}  // namespace losses

/// Labels by rows, without what fills them. Throws ArgumentError as `losses::ctc`; `classes` bounds labels.
[[nodiscard]] std::vector<std::vector<std::int64_t>> label_rows(const Tensor& labels, std::int64_t classes,
                                                                std::int64_t blank = 0,
                                                                std::optional<std::int64_t> padding = {});

/// How many places labels take at least: their number, and one more between equal neighbours.
[[nodiscard]] std::int64_t ctc_places(const std::vector<std::int64_t>& labels);

/// Greedy decoding: the largest class of each place of outputs [N, C, L], repeats and then blanks taken out:
/// i64 [N, L] on the host, filled by -1.
[[nodiscard]] Tensor ctc_decode(const Tensor& outputs, std::int64_t blank = 0);

/// The least number of labels to put in, take out or replace that makes one sequence the other (Levenshtein).
[[nodiscard]] std::int64_t edit_distance(const std::vector<std::int64_t>& a,
                                         const std::vector<std::int64_t>& b);

}  // namespace fq
