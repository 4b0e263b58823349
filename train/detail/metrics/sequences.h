#pragma once

/// How far sequences that were read by CTC are from what they should be. `blank` is the class between labels.

#include "fakequant/train/metrics.h"

namespace fq::detail {

/// Edits for each label.
[[nodiscard]] std::unique_ptr<Metric> make_label_error_rate(std::int64_t blank);
/// The share of sequences without an edit.
[[nodiscard]] std::unique_ptr<Metric> make_exact_sequences(std::int64_t blank);

}  // namespace fq::detail
