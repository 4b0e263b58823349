#pragma once

/// The answers of a step, counted without its logits leaving their device.

#include <cstdint>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// As `answers`, on the device of the logits; nothing waits.
[[nodiscard]] Tensor answers_there(const Tensor& logits);
/// How many of `found`, i64 [N] of the host, are the label.
[[nodiscard]] std::int64_t count_equal(const Tensor& found, const Tensor& labels);

}  // namespace fq::detail
