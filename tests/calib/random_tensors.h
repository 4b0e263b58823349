#pragma once

/// Tensors for the tests of calibrators.

#include <cmath>
#include <random>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

/// Bell-shaped with a few values far out, a tenth zeros; each seed has another size of values.
inline Tensor heavy_tailed(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> bell;
  const float size = std::ldexp(1.0f + bell(random) * 0.1f, static_cast<int>(seed % 11) - 5);
  std::vector<float> v(static_cast<std::size_t>(numel(shape)));
  for (float& x : v) x = random() % 10 == 0 ? 0.0f : bell(random) * (random() % 50 == 0 ? 8.0f : 1.0f) * size;
  return Tensor::from(v, shape);
}

/// The elements of index `at` along `axis`, in their order.
inline Tensor slice_elements(const Tensor& x, int axis, std::int64_t at) {
  const auto v = x.to_vector<float>();
  std::int64_t inner = 1;
  for (int a = axis + 1; a < x.rank(); ++a) inner *= x.dim(a);
  std::vector<float> out;
  for (std::int64_t i = 0; i < x.numel(); ++i)
    if (i / inner % x.dim(axis) == at) out.push_back(v[static_cast<std::size_t>(i)]);
  return Tensor::from(out, {static_cast<std::int64_t>(out.size())});
}

}  // namespace fq
