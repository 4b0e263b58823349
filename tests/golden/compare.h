#pragma once

/// Comparison of a result with a stored answer.

#include <optional>
#include <string>

#include "case.h"

namespace fq::golden {

/// Empty where they agree by `rule`: "bits", "abs:T", "rel:T" (of the stored value) or "ulp:N"; any NaN
/// equals any NaN. Otherwise one line: the first element that differs, expected and got, or what differs in
/// type or shape. Types agree when both name the same codes: packed i4, u4 and f4_e2m1 tensors are compared
/// with codes stored one a byte, u1 with bool; where a tolerance is given, floats of another width with each
/// other. No tolerance of "abs" and "rel" is more than `widest` times the largest finite number stored.
[[nodiscard]] std::optional<std::string> difference(const Value& expected, const Tensor& got,
                                                    const std::string& rule, double widest);

}  // namespace fq::golden
