#pragma once

/// One element on its way to a code and back in torchao's arithmetic.

#include "fakequant/reference/detail/stepped.h"
#include "fakequant/reference/detail/torchao_grid.h"

namespace fq::torchao {

/// P rounds the way to the code, T the way back.
template <class P, class T, bool floating>
struct Steps {
  using Position = detail::Step<P>;
  using Result = detail::Step<T>;
  Position lower, upper;
  float middle;

  explicit Steps(const Codes& codes)
      : lower{detail::rounded<P>(codes.lower)},
        upper{detail::rounded<P>(codes.upper)},
        middle(codes.middle) {}

  [[nodiscard]] Position position(float x, const detail::AffineRow& row) const {
    if constexpr (floating)
      return scalar::floating_position(Position{x}, Position{row.entry}, Position{row.scale});
    else
      return scalar::affine_position(Position{x}, Position{row.reciprocal}, Position{row.entry});
  }
  /// Unrounded by T.
  [[nodiscard]] float code(float x, const detail::AffineRow& row) const {
    return static_cast<float>(scalar::clamp_keeping_(position(x, row), lower, upper));
  }
  [[nodiscard]] float value(float code, const detail::AffineRow& row) const {
    const Result scale{row.scale}, zero_point{row.exit};
    if constexpr (floating)
      return static_cast<float>(scalar::floating_value(Result{centred(code)}, scale, zero_point));
    else
      return static_cast<float>(scalar::linear_value(Result{detail::rounded<T>(code)}, scale, zero_point));
  }
  /// q - mid, by P and then by T.
  [[nodiscard]] float centred(float code) const {
    return detail::rounded<T>(detail::rounded<P>(code - middle));
  }
  /// The gradient of x, from the one that reaches the position.
  [[nodiscard]] float gradient(float x, float dy, const detail::AffineRow& row) const {
    const Result reached = reaching(x, dy, row);
    using scalar::div_, scalar::mul_;
    return static_cast<float>(floating ? div_(reached, Result{row.scale})
                                       : mul_(reached, Result{row.reciprocal}));
  }
  /// What the element adds to the gradient of its scale: through the way back, dy times what the scale
  /// multiplies there, and through the position, straight through its rounding.
  [[nodiscard]] double scale_slope(float x, float dy, const detail::AffineRow& row) const {
    const double s = row.scale, reached = static_cast<float>(reaching(x, dy, row)), q = code(x, row);
    if constexpr (floating)
      return dy * (q - middle) + reached * (middle - (x - double{row.entry}) / s) / s;
    else
      return dy * (q - row.exit) - reached * x * row.reciprocal * row.reciprocal;
  }
  /// The gradient that reaches the position: fl(dy * s) strictly inside the range, else 0.
  [[nodiscard]] Result reaching(float x, float dy, const detail::AffineRow& row) const {
    return scalar::masked_product(Result{dy}, Result{row.scale},
                                  scalar::mask_open(position(x, row), lower, upper));
  }
};

/// Calls f(Steps) for results of type `result` and a way to the codes rounded to `steps`: that type or f32.
template <class F>
decltype(auto) visit_steps(DType result, DType steps, const Grid& grid, F&& f) {
  return detail::visit_rounding(result, [&]<class T>(T) {
    const bool same = steps == result;
    if (grid.floating) return same ? f(Steps<T, T, true>(grid.codes)) : f(Steps<float, T, true>(grid.codes));
    return same ? f(Steps<T, T, false>(grid.codes)) : f(Steps<float, T, false>(grid.codes));
  });
}

}  // namespace fq::torchao
