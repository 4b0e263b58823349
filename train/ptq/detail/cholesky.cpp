#include "fakequant/train/ptq/detail/cholesky.h"

#include <cmath>
#include <numeric>

#include "fakequant/core/error.h"

namespace fq::ptq {
namespace {

/// h = V V^T, V upper triangular, in place; what lies below its diagonal is left as it was.
void factor(std::vector<double>& h, std::int64_t n) {
  const auto row = [&](std::int64_t i) { return h.begin() + i * n; };
  for (std::int64_t j = n; j-- > 0;) {
    const auto tail = row(j) + j + 1, end = row(j) + n;
    const double pivot = row(j)[j] - std::inner_product(tail, end, tail, 0.0);
    if (!(pivot > 0)) throw NumericError("[gptq] the Hessian is not positive definite: raise the damping");
    row(j)[j] = std::sqrt(pivot);
    for (std::int64_t i = 0; i < j; ++i)
      row(i)[j] = (row(i)[j] - std::inner_product(tail, end, row(i) + j + 1, 0.0)) / row(j)[j];
  }
}

}  // namespace

std::vector<double> inverse_factor(std::vector<double> h, std::int64_t n) {
  factor(h, n);
  std::vector<double> out(h.size(), 0.0);
  for (std::int64_t i = n; i-- > 0;) {
    auto* to = out.data() + i * n;
    const auto* v = h.data() + i * n;
    to[i] = 1.0;
    for (std::int64_t k = i + 1; k < n; ++k)
      for (std::int64_t j = k; j < n; ++j) to[j] -= v[k] * out[static_cast<std::size_t>(k * n + j)];
    for (std::int64_t j = i; j < n; ++j) to[j] /= v[i];
  }
  return out;
}

}  // namespace fq::ptq
