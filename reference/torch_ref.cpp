#include "fakequant/reference/torch_ref.h"

#include <limits>
#include <utility>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/tape.h"
#include "fakequant/reference/detail/affine.h"
#include "fakequant/reference/detail/rounding.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/detail/torch_grid.h"

namespace fq::torch_ref {
namespace {

using detail::AffineRow;

constexpr const char* kTensor = "fake_quantize_per_tensor_affine";
constexpr const char* kChannel = "fake_quantize_per_channel_affine";

}  // namespace

// Per tensor, positions of any size saturate: no limit. torch keeps the scale as float and multiplies by its
// reciprocal.
Grid tensor_grid(const Tensor& x, double scale, std::int64_t zero_point, const Range& range) {
  const auto s = static_cast<float>(scale), z = static_cast<float>(zero_point);
  return {x.shape(), {AffineRow{s, 1.0f / s, z, z}}, range, std::numeric_limits<float>::infinity()};
}

// Per channel, torch casts positions to int64. Above `channel_limit` the cast overflows.
Grid channel_grid(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int axis,
                  const Range& range) {
  Shape block = x.shape();
  block[static_cast<std::size_t>(axis)] = 1;
  const Tensor zeros = zero_point.to(DType::f32);
  const auto *s = scale.data<float>(), *z = zeros.data<float>();
  std::vector<AffineRow> rows;
  for (std::int64_t i = 0; i < scale.numel(); ++i) rows.push_back({s[i], 1.0f / s[i], z[i], z[i]});
  return {std::move(block), std::move(rows), range, channel_limit};
}

void check_input(const Tensor& x, const Range& range, const char* function) {
  FQ_CHECK(is_floating(x.dtype()), function, "the input is {}: use f32, f16, bf16 or f64", name(x.dtype()));
  FQ_CHECK(range.lower <= range.upper, function, "quant_min {} is above quant_max {}: swap them", range.lower,
           range.upper);
}

void check_channels(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int axis,
                    const char* function) {
  FQ_CHECK(axis >= 0 && axis < x.rank(), function, "axis {} of the input {}: {}", axis, to_string(x.shape()),
           detail::allowed_indices(x.rank()));
  const Shape one_each{x.dim(axis)};
  FQ_CHECK(scale.dtype() == DType::f32 && scale.shape() == one_each, function,
           "the scale is {} {}: use f32 {}, one for each index of axis {}", name(scale.dtype()),
           to_string(scale.shape()), to_string(one_each), axis);
  FQ_CHECK(zero_point.shape() == one_each, function,
           "the zero point is {}: use {}, one for each index of axis {}", to_string(zero_point.shape()),
           to_string(one_each), axis);
}

namespace {

// Integer zero points: rne(x / s) + z.
struct Outside {
  static float position(float x, const AffineRow& row) {
    return scalar::affine_position(x, row.reciprocal, row.entry);
  }
  static float value(float code, const AffineRow& row) {
    return scalar::linear_value(code, row.scale, row.exit);
  }
};
// f32 zero points of channels: rne(fma(x, 1 / s, z)), and the value in double, rounded once.
struct Fused {
  static float position(float x, const AffineRow& row) {
    return scalar::affine_position_inside(x, row.reciprocal, row.entry);
  }
  static float value(float code, const AffineRow& row) {
    using detail::Wide;
    return static_cast<float>(scalar::linear_value(Wide{code}, Wide{row.scale}, Wide{row.exit}).value);
  }
};
// f16 zero points of channels: product and sum are rounded separately.
struct Summed : Fused {
  static float position(float x, const AffineRow& row) {
    return scalar::rint_(scalar::add_(scalar::mul_(x, row.reciprocal), row.entry));
  }
};

// Calls f with the zero-point arithmetic of the grid.
template <class F>
Tensor with_sum(const Grid& grid, F&& f) {
  switch (grid.sum) {
    case ZeroPointSum::fused:
      return f(Fused{});
    case ZeroPointSum::summed:
      return f(Summed{});
    default:
      return f(Outside{});
  }
}

}  // namespace

Tensor fake_quantize(const Tensor& x, const Grid& grid) {
  if (x.dtype() == DType::f64) return fake_quantize_wide(x, grid);
  const float lower = grid.range.lowest(), upper = grid.range.highest(), limit = grid.limit;
  return with_sum(grid, [&](auto sum) {
    return detail::map_rows(x, grid.block, grid.rows, x.dtype(), [=](float v, const AffineRow& row) {
      const float position = sum.position(v, row);
      // An overflowing cast gives INT64_MIN, which clamps to quant_min. NaN fails the comparison and gives
      // quant_min too.
      const float bounded = scalar::select_(scalar::less_equal_(position, limit), position, lower);
      return sum.value(scalar::clamp_(bounded, lower, upper), row);
    });
  });
}

namespace {

Tensor gradient(const Tensor& x, const Tensor& dy, const Grid& grid) {
  if (x.dtype() == DType::f64) return gradient_wide(x, dy, grid);
  const float lower = grid.range.lowest(), upper = grid.range.highest();
  return with_sum(grid, [&](auto sum) {
    return detail::map_rows(x, dy.to(x.dtype()), grid.block, grid.rows, x.dtype(),
                            [=](float v, float d, const AffineRow& row, std::int64_t) {
                              const bool inside = scalar::mask_closed(sum.position(v, row), lower, upper);
                              // A product with the mask, as in torch: a negative gradient outside of the
                              // range becomes -0.
                              return scalar::mul_(d, scalar::select_(inside, 1.0f, 0.0f));
                            });
  });
}

Variable recorded(const char* op, const Variable& x, Grid grid) {
  Tensor y = fake_quantize(x.tensor(), grid);
  return detail::record(op, std::move(y), {x},
                        [saved = detail::Saved(x.tensor()), grid = std::move(grid)](const Tensor& dy) {
                          return std::vector<Tensor>{gradient(saved.get(), dy, grid)};
                        });
}

Grid checked_tensor_grid(const Tensor& x, double scale, std::int64_t zero_point, const Range& range) {
  check_input(x, range, kTensor);
  FQ_CHECK(zero_point >= range.lower && zero_point <= range.upper, kTensor,
           "the zero point {} is outside of quant_min {} to quant_max {}", zero_point, range.lower,
           range.upper);
  return tensor_grid(x, scale, zero_point, range);
}

Grid checked_channel_grid(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int axis,
                          const Range& range) {
  check_input(x, range, kChannel);
  check_channels(x, scale, zero_point, axis, kChannel);
  Grid grid = channel_grid(x, scale, zero_point, axis, range);
  if (is_floating(zero_point.dtype())) {
    FQ_CHECK(zero_point.dtype() == DType::f32 || zero_point.dtype() == DType::f16, kChannel,
             "the zero point is {}: use an integer type, f32 or f16", name(zero_point.dtype()));
    // torch rejects f64 and bf16 zero points. Float zero points need not lie within the range.
    grid.sum = zero_point.dtype() == DType::f32 ? ZeroPointSum::fused : ZeroPointSum::summed;
    return grid;
  }
  for (const std::int64_t z : zero_point.to(DType::i64).to_vector<std::int64_t>())
    FQ_CHECK(z >= range.lower && z <= range.upper, kChannel,
             "the zero point {} is outside of quant_min {} to quant_max {}", z, range.lower, range.upper);
  return grid;
}

namespace host {

Tensor fake_quantize_per_tensor_affine(const Tensor& x, double scale, std::int64_t zero_point,
                                       std::int64_t quant_min, std::int64_t quant_max) {
  return fake_quantize(x, checked_tensor_grid(x, scale, zero_point, {quant_min, quant_max}));
}

Variable fake_quantize_per_tensor_affine(const Variable& x, double scale, std::int64_t zero_point,
                                         std::int64_t quant_min, std::int64_t quant_max) {
  const Variable v = x.as_float();
  return recorded(kTensor, v, checked_tensor_grid(v.tensor(), scale, zero_point, {quant_min, quant_max}));
}

Tensor fake_quantize_per_channel_affine(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                                        int axis, std::int64_t quant_min, std::int64_t quant_max) {
  return fake_quantize(x, checked_channel_grid(x, scale, zero_point, axis, {quant_min, quant_max}));
}

Variable fake_quantize_per_channel_affine(const Variable& x, const Tensor& scale, const Tensor& zero_point,
                                          int axis, std::int64_t quant_min, std::int64_t quant_max) {
  const Variable v = x.as_float();
  return recorded(kChannel, v,
                  checked_channel_grid(v.tensor(), scale, zero_point, axis, {quant_min, quant_max}));
}

}  // namespace host
}  // namespace

Tensor fake_quantize_per_tensor_affine(const Tensor& x, double scale, std::int64_t zero_point,
                                       std::int64_t quant_min, std::int64_t quant_max) {
  return detail::through_host<Tensor>(host::fake_quantize_per_tensor_affine, x, scale, zero_point, quant_min,
                                      quant_max);
}

Variable fake_quantize_per_tensor_affine(const Variable& x, double scale, std::int64_t zero_point,
                                         std::int64_t quant_min, std::int64_t quant_max) {
  return detail::through_host<Variable>(host::fake_quantize_per_tensor_affine, x, scale, zero_point,
                                        quant_min, quant_max);
}

Tensor fake_quantize_per_channel_affine(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                                        int axis, std::int64_t quant_min, std::int64_t quant_max) {
  return detail::through_host<Tensor>(host::fake_quantize_per_channel_affine, x, scale, zero_point, axis,
                                      quant_min, quant_max);
}

Variable fake_quantize_per_channel_affine(const Variable& x, const Tensor& scale, const Tensor& zero_point,
                                          int axis, std::int64_t quant_min, std::int64_t quant_max) {
  return detail::through_host<Variable>(host::fake_quantize_per_channel_affine, x, scale, zero_point, axis,
                                        quant_min, quant_max);
}

}  // namespace fq::torch_ref
