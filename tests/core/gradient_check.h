#pragma once

/// The gradient checker that every differentiable operator and layer goes through.

#include <functional>
#include <string>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq::test {

using Function = std::function<Variable(const std::vector<Variable>&)>;

struct GradientCheck {
  double step = 1e-5;
  /// Tolerance of |analytic - numeric| relative to max(1, |numeric|). Central differences in f64 have an
  /// error of about step^2 * f''' + 1e-16 / step, some 1e-10 here; sums over a test's inputs leave room to
  /// 1e-6.
  double tolerance = 1e-6;
  /// Function of the numeric side, for straight-through operators; empty: the operator itself.
  Function surrogate;
};

/// Compares the gradients of `f` at f64 `inputs` (those marked in `differentiable`) with central differences
/// of sum(seed * f), seed random. Memory is poisoned meanwhile, so that a gradient never written is NaN. The
/// answer is empty, or says which element differs and how.
[[nodiscard]] std::string check_gradients(const Function& f, const std::vector<Tensor>& inputs,
                                          const std::vector<bool>& differentiable,
                                          const GradientCheck& options = {});

/// Deterministic values in [low, high), f64.
[[nodiscard]] Tensor random_values(const Shape& shape, unsigned seed, double low = -2.0, double high = 2.0);
/// Values moved at least `margin` away from each kink.
[[nodiscard]] Tensor moved_off(const Tensor& values, const std::vector<double>& kinks, double margin = 0.05);
/// A shuffle of equally spaced values in [-1, 1]: no two are near each other.
[[nodiscard]] Tensor distinct_values(const Shape& shape, unsigned seed);

/// Every block of memory handed out while it lives is NaN.
class Poison {
 public:
  Poison();
  ~Poison();
  Poison(const Poison&) = delete;  // tied to its block
  Poison& operator=(const Poison&) = delete;
};

}  // namespace fq::test
