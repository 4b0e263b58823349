#pragma once

/// An operator's case run: on any device, its output and gradients side by side.

#include "core/operator_registry.h"

namespace fq::test {

/// The inputs of a case on the CPU; with `empty`, batches have no samples.
[[nodiscard]] std::vector<Tensor> make_inputs(const OperatorCase& tested, DType dtype, bool empty = false);
[[nodiscard]] std::vector<Variable> make_leaves(const OperatorCase& tested,
                                                const std::vector<Tensor>& tensors);
[[nodiscard]] std::vector<bool> differentiable_inputs(const OperatorCase& tested);
/// The output and every gradient, undefined ones too, the seed all ones.
[[nodiscard]] std::vector<Tensor> run_case(const OperatorCase& tested, const std::vector<Tensor>& tensors);

/// Empty where all are of the same shapes and |a - b| <= tolerance * max(1, |b|); else what differs.
[[nodiscard]] std::string difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b,
                                     double tolerance);

}  // namespace fq::test
