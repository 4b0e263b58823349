#pragma once

/// Arithmetic of the optimizers on a part [begin, end) of an array, f32 or f64, for every vector instruction
/// set. Multiplications and additions are not fused, so an element has the same bits at any position.

#include "fakequant/core/backend/updates.h"

namespace fq::cpu {

using detail::AdamArrays, detail::AdamFactors, detail::SgdArrays, detail::SgdFactors;

/// Updates g = gradient * scale + weight_decay * p; m = momentum * m + g; p -= learning_rate * m. With
/// Nesterov, p -= learning_rate * (g + momentum * m). Without m, p -= learning_rate * g.
void update(const SgdArrays<float>& a, const SgdFactors<float>& f, std::int64_t begin, std::int64_t end);
void update(const SgdArrays<double>& a, const SgdFactors<double>& f, std::int64_t begin, std::int64_t end);

/// Updates p *= keep; g = gradient * scale + weight_decay * p; m = beta1 * m + rest1 * g; v = beta2 * v +
/// rest2 * g * g; p -= rate * m / (sqrt(v) * root + eps).
void update(const AdamArrays<float>& a, const AdamFactors<float>& f, std::int64_t begin, std::int64_t end);
void update(const AdamArrays<double>& a, const AdamFactors<double>& f, std::int64_t begin, std::int64_t end);

}  // namespace fq::cpu
