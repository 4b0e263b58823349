#include <cmath>
#include <vector>

#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"

namespace fq::cpu {

void add_fixed(std::span<const Tensor> terms, int shift, Tensor& sums) {
  std::vector<const float*> added;
  for (const auto& term : terms) added.push_back(term.data<float>());
  auto* out = sums.mutable_data<std::int64_t>();
  const double scale = std::ldexp(1.0, shift);
#pragma omp parallel for
  for (std::int64_t i = 0; i < sums.numel(); ++i) {
    // Integer addition has no order: the sum over ranks has the same bits for any number of ranks.
    std::int64_t sum = 0;
    // All ranks use one shift, which depends on the largest magnitude of all ranks, so that no sum overflows.
    for (const float* term : added) sum += scalar::to_fixed(term[i], scale);
    out[i] = sum;
  }
}

void from_fixed(const Tensor& sums, int shift, Tensor& out) {
  const auto* from = sums.data<std::int64_t>();
  auto* values = out.mutable_data<float>();
  const double unit = std::ldexp(1.0, -shift);
#pragma omp parallel for
  for (std::int64_t i = 0; i < out.numel(); ++i) values[i] = scalar::from_fixed(from[i], unit);
}

}  // namespace fq::cpu
