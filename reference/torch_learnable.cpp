#include <cmath>
#include <limits>
#include <utility>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/tape.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/detail/torch_grid.h"
#include "fakequant/reference/torch_ref.h"

namespace fq::torch_ref {
namespace {

using detail::AffineRow;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr const char* kLearnableTensor = "fake_quantize_learnable_per_tensor_affine";
constexpr const char* kLearnableChannel = "fake_quantize_learnable_per_channel_affine";

// Returns the zero points rounded by f(z, quant_min, quant_max).
template <class F>
Tensor rounded_zero_points(const Tensor& zero_point, const Range& range, F f) {
  auto values = zero_point.to_vector<float>();
  for (float& z : values) z = f(z, range.lowest(), range.highest());
  return Tensor::from(values, zero_point.shape());
}

// torch rounds the zero point differently in its forward and backward functions per tensor (golden/README,
// torch.h5). They differ for ties and negative fractions.
float forward_zero_point(float z, float lower, float upper) {
  return scalar::rint_(scalar::clamp_(z, lower, upper));
}

float backward_zero_point(float z, float lower, float upper) {
  return std::trunc(scalar::clamp_(z + 0.5f, lower, upper));
}

/// Gradients of x, the scale and the zero point.
std::vector<Tensor> gradients(const Tensor& x, const Tensor& dy, const Grid& grid, const Shape& scales,
                              double grad_factor) {
  // Sums in double: torch's order of summation is unspecified and its results carry a tolerance.
  std::vector<double> d_scale(grid.rows.size()), d_zero(grid.rows.size());
  const float lower = grid.range.lowest(), upper = grid.range.highest();
  const Tensor dx = detail::map_rows(
      x, dy.to(x.dtype()), grid.block, grid.rows, x.dtype(),
      [&](float v, float d, const AffineRow& row, std::int64_t j) {
        const float reached = scalar::affine_position_inside(v, row.reciprocal, row.entry);
        // An overflowing int64 cast gives INT64_MIN, which lies outside of every range. So does NaN.
        const float position = scalar::select_(scalar::less_equal_(reached, grid.limit), reached, -infinity);
        const bool inside = scalar::mask_closed(position, lower, upper);
        const auto at = static_cast<std::size_t>(j);
        d_scale[at] +=
            static_cast<double>(d) *
            scalar::affine_scale_slope(v, position, row.scale, row.reciprocal, row.exit, lower, upper);
        // The zero point changes y only where the code saturates: y = (bound - z) * s.
        d_zero[at] -= inside ? 0 : static_cast<double>(d) * row.scale;
        return scalar::mul_(d, scalar::select_(inside, 1.0f, 0.0f));
      });
  const auto scaled = [&](std::vector<double>& sums) {
    for (double& sum : sums) sum *= grad_factor;
    return Tensor::from(sums, scales).to(DType::f32);
  };
  return {dx, scaled(d_scale), scaled(d_zero)};
}

Variable recorded(const char* op, const Variable& x, const Variable& scale, const Variable& zero_point,
                  const Grid& forward, Grid backward, double grad_factor) {
  return detail::record(
      op, fake_quantize(x.tensor(), forward), {x, scale, zero_point},
      [saved = detail::Saved(x.tensor()), grid = std::move(backward), grad_factor, shape = scale.shape()](
          const Tensor& dy) { return gradients(saved.get(), dy, grid, shape, grad_factor); });
}

void check_learnt(const Variable& learnt, const char* what, const char* function) {
  FQ_CHECK(learnt.tensor().dtype() == DType::f32, function, "the {} is {}: use f32", what,
           name(learnt.tensor().dtype()));
}

}  // namespace

Variable fake_quantize_learnable_per_tensor_affine(const Variable& x, const Variable& scale,
                                                   const Variable& zero_point, std::int64_t quant_min,
                                                   std::int64_t quant_max, double grad_factor) {
  if (detail::needs_host(x))
    return detail::on_host(fake_quantize_learnable_per_tensor_affine, x, scale, zero_point, quant_min,
                           quant_max, grad_factor);
  const Variable v = x.as_float();
  const Range range{quant_min, quant_max};
  check_input(v.tensor(), range, kLearnableTensor);
  check_learnt(v, "input", kLearnableTensor);
  check_learnt(scale, "scale", kLearnableTensor);
  check_learnt(zero_point, "zero point", kLearnableTensor);
  FQ_CHECK(scale.numel() == 1 && zero_point.numel() == 1, kLearnableTensor,
           "the scale is {} and the zero point {}: use one element each, or use the form per channel",
           to_string(scale.shape()), to_string(zero_point.shape()));
  // Forward and backward use grids that differ in the zero point and in the limit of positions.
  const auto grid = [&](auto rounding) {
    const double zero = rounded_zero_points(zero_point.tensor(), range, rounding).item();
    return tensor_grid(v.tensor(), scale.item(), static_cast<std::int64_t>(zero), range);
  };
  Grid backward = grid(backward_zero_point);
  backward.limit = channel_limit;
  return recorded(kLearnableTensor, v, scale, zero_point, grid(forward_zero_point), std::move(backward),
                  grad_factor);
}

Variable fake_quantize_learnable_per_channel_affine(const Variable& x, const Variable& scale,
                                                    const Variable& zero_point, int axis,
                                                    std::int64_t quant_min, std::int64_t quant_max,
                                                    double grad_factor) {
  if (detail::needs_host(x))
    return detail::on_host(fake_quantize_learnable_per_channel_affine, x, scale, zero_point, axis, quant_min,
                           quant_max, grad_factor);
  const Variable v = x.as_float();
  const Range range{quant_min, quant_max};
  check_input(v.tensor(), range, kLearnableChannel);
  check_learnt(v, "input", kLearnableChannel);
  check_learnt(scale, "scale", kLearnableChannel);
  check_learnt(zero_point, "zero point", kLearnableChannel);
  check_channels(v.tensor(), scale.tensor(), zero_point.tensor(), axis, kLearnableChannel);
  const Tensor zero = rounded_zero_points(zero_point.tensor(), range, forward_zero_point);
  const Grid grid = channel_grid(v.tensor(), scale.tensor(), zero, axis, range);
  return recorded(kLearnableChannel, v, scale, zero_point, grid, grid, grad_factor);
}

}  // namespace fq::torch_ref
