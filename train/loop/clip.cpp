#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/detail/updates.h"
#include "fakequant/train/optimizer.h"

namespace fq {

double gradient_norm(const std::vector<Variable>& parameters) {
  std::vector<Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const auto& p : parameters) gradients.push_back(p.grad());
  return ops::norm(gradients);
}

double clip_factor(double norm, double max_norm) {
  FQ_CHECK(max_norm >= 0, "clip", "the largest norm is {}: use 0 (no clipping) or more", max_norm);
  if (max_norm == 0) return 1;
  if (!std::isfinite(norm))
    throw NumericError(
        fmt::format("[clip] the norm of the gradients is {}: use a smaller learning rate", norm));
  return norm > max_norm ? max_norm / norm : 1;
}

}  // namespace fq
