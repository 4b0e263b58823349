#include "fakequant/core/reference/torch_ref.h"

#include <limits>
#include <utility>

#include "fakequant/core/check.h"
#include "fakequant/core/formulas.h"
#include "fakequant/core/reference/affine.h"
#include "fakequant/core/reference/through_host.h"
#include "fakequant/core/reference/torch_grid.h"
#include "fakequant/core/tape.h"

namespace fq::torch_ref {
namespace {

using detail::AffineRow;

constexpr const char* kTensor = "fake_quantize_per_tensor_affine";
constexpr const char* kChannel = "fake_quantize_per_channel_affine";

}  // namespace

Grid tensor_grid(const Tensor& x, double scale, std::int64_t zero_point, const Range& range) {
  const auto s = static_cast<float>(scale), z = static_cast<float>(zero_point);
  return {x.shape(), {AffineRow{s, 1.0f / s, z, z}}, range, std::numeric_limits<float>::infinity()};
}

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
  FQ_CHECK(is_floating(x.dtype()), function, "the input is {}: give f32, f16, bf16 or f64", name(x.dtype()));
  FQ_CHECK(range.lower <= range.upper, function, "quant_min {} is above quant_max {}: swap them", range.lower,
           range.upper);
}

void check_channels(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int axis,
                    const char* function) {
  FQ_CHECK(axis >= 0 && axis < x.rank(), function, "axis {} of the input {}: use one of 0 to {}", axis,
           to_string(x.shape()), x.rank() - 1);
  const Shape one_each{x.dim(axis)};
  FQ_CHECK(scale.dtype() == DType::f32 && scale.shape() == one_each, function,
           "the scale is {} {}: give f32 {}, one for each index of axis {}", name(scale.dtype()),
           to_string(scale.shape()), to_string(one_each), axis);
  FQ_CHECK(zero_point.shape() == one_each, function,
           "the zero point is {}: give {}, one for each index of axis {}", to_string(zero_point.shape()),
           to_string(one_each), axis);
}

Tensor fake_quantize(const Tensor& x, const Grid& grid) {
  if (x.dtype() == DType::f64) return fake_quantize_wide(x, grid);
  const float lower = grid.range.lowest(), upper = grid.range.highest(), limit = grid.limit;
  return detail::map_rows(x, grid.block, grid.rows, x.dtype(), [=](float v, const AffineRow& row) {
    const float position = scalar::affine_position(v, row.reciprocal, row.entry);
    const float kept = scalar::select_(scalar::less_equal_(position, limit), position, lower);
    return scalar::linear_value(scalar::clamp_(kept, lower, upper), row.scale, row.exit);
  });
}

namespace {

Tensor gradient(const Tensor& x, const Tensor& dy, const Grid& grid) {
  if (x.dtype() == DType::f64) return gradient_wide(x, dy, grid);
  const float lower = grid.range.lowest(), upper = grid.range.highest();
  return detail::map_rows(x, dy.to(x.dtype()), grid.block, grid.rows, x.dtype(),
                          [=](float v, float d, const AffineRow& row, std::int64_t) {
                            const float position = scalar::affine_position(v, row.reciprocal, row.entry);
                            return scalar::mul_(
                                d, scalar::select_(scalar::mask_closed(position, lower, upper), 1.0f, 0.0f));
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
  FQ_CHECK(!is_floating(zero_point.dtype()), kChannel, "the zero point is {}: give an integer type",
           name(zero_point.dtype()));
  for (const std::int64_t z : zero_point.to(DType::i64).to_vector<std::int64_t>())
    FQ_CHECK(z >= range.lower && z <= range.upper, kChannel,
             "the zero point {} is outside of quant_min {} to quant_max {}", z, range.lower, range.upper);
  return channel_grid(x, scale, zero_point, axis, range);
}

}  // namespace

Tensor fake_quantize_per_tensor_affine(const Tensor& x, double scale, std::int64_t zero_point,
                                       std::int64_t quant_min, std::int64_t quant_max) {
  FQ_THROUGH_HOST(fake_quantize_per_tensor_affine, x, scale, zero_point, quant_min, quant_max);
  return fake_quantize(x, checked_tensor_grid(x, scale, zero_point, {quant_min, quant_max}));
}

Variable fake_quantize_per_tensor_affine(const Variable& x, double scale, std::int64_t zero_point,
                                         std::int64_t quant_min, std::int64_t quant_max) {
  FQ_THROUGH_HOST(fake_quantize_per_tensor_affine, x, scale, zero_point, quant_min, quant_max);
  const Variable v = x.as_float();
  return recorded(kTensor, v, checked_tensor_grid(v.tensor(), scale, zero_point, {quant_min, quant_max}));
}

Tensor fake_quantize_per_channel_affine(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                                        int axis, std::int64_t quant_min, std::int64_t quant_max) {
  FQ_THROUGH_HOST(fake_quantize_per_channel_affine, x, scale, zero_point, axis, quant_min, quant_max);
  return fake_quantize(x, checked_channel_grid(x, scale, zero_point, axis, {quant_min, quant_max}));
}

Variable fake_quantize_per_channel_affine(const Variable& x, const Tensor& scale, const Tensor& zero_point,
                                          int axis, std::int64_t quant_min, std::int64_t quant_max) {
  FQ_THROUGH_HOST(fake_quantize_per_channel_affine, x, scale, zero_point, axis, quant_min, quant_max);
  const Variable v = x.as_float();
  return recorded(kChannel, v,
                  checked_channel_grid(v.tensor(), scale, zero_point, axis, {quant_min, quant_max}));
}

}  // namespace fq::torch_ref
