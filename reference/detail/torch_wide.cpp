#include <cmath>

#include "fakequant/reference/detail/rounding.h"
#include "fakequant/reference/detail/torch_grid.h"

namespace fq::torch_ref {
namespace {

using detail::AffineRow;
using detail::Wide;

// Position of an f64 element. Float zero points are added in double, and the sum is rounded to float before
// rint.
Wide wide_position(double x, const AffineRow& row, ZeroPointSum sum) {
  if (sum == ZeroPointSum::outside)
    return scalar::affine_position(Wide{x}, Wide{row.reciprocal}, Wide{row.entry});
  const double position = x * double{row.reciprocal} + double{row.entry};
  return {static_cast<double>(scalar::rint_(static_cast<float>(position)))};
}

// Returns y[i] = f(i, row of i), in f64 and the layout of `like`.
template <class F>
Tensor filled(const Tensor& like, const Grid& grid, F f) {
  Tensor y = Tensor::empty(like.shape(), DType::f64, like.device());
  if (like.device().is_meta()) return y;
  auto* out = y.mutable_data<double>();
  detail::visit_block_runs(like.shape(), grid.block, [&](auto begin, auto end, auto j, auto step) {
    for (auto i = begin; i < end; ++i)
      out[i] = f(i, grid.rows[static_cast<std::size_t>(j + (i - begin) * step)]);
  });
  return y.to(like.layout());
}

}  // namespace

Tensor fake_quantize_wide(const Tensor& x, const Grid& grid) {
  const Tensor rows = x.to(Layout::row_major);
  const Wide lower{grid.range.lowest()}, upper{grid.range.highest()};
  // A finite limit marks the per-channel form: the int64 cast overflows to quant_min, and values are in
  // double. The per-tensor form computes values in float.
  const bool wraps = std::isfinite(grid.limit);
  const auto* v = x.device().is_meta() ? nullptr : rows.data<double>();
  return filled(x, grid, [&](auto i, const AffineRow& row) {
    const Wide position = wide_position(v[i], row, grid.sum);
    const Wide kept = wraps && !(position.value < 0x1p63) ? lower : position;
    const Wide code = scalar::clamp_(kept, lower, upper);
    if (wraps) return scalar::linear_value(code, Wide{row.scale}, Wide{row.exit}).value;
    return static_cast<double>(scalar::linear_value(static_cast<float>(code.value), row.scale, row.exit));
  });
}

Tensor gradient_wide(const Tensor& x, const Tensor& dy, const Grid& grid) {
  const Tensor rows = x.to(Layout::row_major), gradients = dy.to(DType::f64).to(Layout::row_major);
  const Wide lower{grid.range.lowest()}, upper{grid.range.highest()};
  const bool meta = x.device().is_meta();
  const auto *v = meta ? nullptr : rows.data<double>(), *d = meta ? nullptr : gradients.data<double>();
  return filled(x, grid, [&](auto i, const AffineRow& row) {
    return d[i] * (scalar::mask_closed(wide_position(v[i], row, grid.sum), lower, upper) ? 1.0 : 0.0);
  });
}

}  // namespace fq::torch_ref
