#pragma once

/// Gradient clipping by the norm of all gradients together (Pascanu et al. 2013).

#include <vector>

#include "fakequant/core/variable.h"

namespace fq {

/// The Euclidean norm of all gradients together; parameters without one count as zero.
[[nodiscard]] double gradient_norm(const std::vector<Variable>& parameters);

/// What gradients of that norm are to be multiplied by so that it is at most `max_norm`: min(1, max_norm /
/// norm). Hand it to Optimizer::step. 1 when `max_norm` is 0 (no clipping). Throws ArgumentError for a
/// negative or NaN `max_norm`, NumericError for a norm that is NaN or infinite.
[[nodiscard]] double clip_factor(double norm, double max_norm);

}  // namespace fq
