#pragma once

/// Tensors that must have the same bits on any device. Which NaN an operation gives, its sign and payload, is
/// the processor's own.

#include <bit>

#include <gtest/gtest.h>

#include "fakequant/core/tensor.h"

namespace fq {

/// Same shape, dtype and bits; of floats any NaN equals any other.
inline testing::AssertionResult same_numbers(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype())
    return testing::AssertionFailure() << a.describe() << " and " << b.describe();
  if (!is_floating(a.dtype())) {
    if (bitwise_equal(a, b)) return testing::AssertionSuccess();
    return testing::AssertionFailure() << a << "\nis not\n" << b;
  }
  const auto values = [](const Tensor& t) { return t.to(Device::cpu()).to(DType::f64).to_vector<double>(); };
  const auto x = values(a), y = values(b);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::bit_cast<std::uint64_t>(x[i]) != std::bit_cast<std::uint64_t>(y[i]) &&
        !(x[i] != x[i] && y[i] != y[i]))
      return testing::AssertionFailure()
             << "element " << i << " of " << a.describe() << ": " << x[i] << " is not " << y[i];
  return testing::AssertionSuccess();
}

}  // namespace fq
