#include "fakequant/reference/xnnpack.h"

#include <limits>
#include <vector>

#include "fakequant/core/backend/cpu/engines/engine_products.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/xnnpack_formulas.h"
#include "fakequant/reference/detail/engine_operands.h"
#include "fakequant/reference/detail/through_host.h"

namespace fq::xnnpack {
namespace {

// Operands of a linear layer on the host: x f32 [M, K], codes i8 [N, K], scale f32 [N] or [N, K / B], bias
// f32 [N] or undefined.
struct Layer {
  const Tensor &x, &codes, &scale, &bias;

  [[nodiscard]] std::int64_t rows() const { return x.dim(0); }
  [[nodiscard]] std::int64_t outputs() const { return codes.dim(0); }
  [[nodiscard]] std::int64_t columns() const { return codes.dim(1); }
  [[nodiscard]] const std::int8_t* weights(std::int64_t n) const {
    return codes.data<std::int8_t>() + n * columns();
  }
  [[nodiscard]] float bias_value(std::int64_t n) const {
    return bias.defined() ? bias.data<float>()[n] : 0.0f;
  }
  [[nodiscard]] Tensor result(DType dtype) const {
    return Tensor::empty({rows(), outputs()}, dtype, x.device());
  }

  void check(const Shape& scales, int lower, int upper, const char* function) const {
    detail::check_matrix(x, DType::f32, "the input", function);
    detail::check_matrix(codes, DType::i8, "the codes", function);
    detail::check_columns(columns(), 1, function);
    detail::check_same_columns(x.dim(1), columns(), function);
    detail::check_shape(scale, DType::f32, scales, "the scale", function);
    if (bias.defined()) detail::check_shape(bias, DType::f32, {outputs()}, "the bias", function);
    // |q - zero point| is at most 255. |w| is at most upper + 1, for the codes -128 and -8.
    detail::check_terms(columns(), 255, upper + 1, function);
    detail::check_codes(codes, lower, upper, function);
  }
};

// Codes i8 [M, K] of the rows of x, and their grids f32 [M, 2]: step and zero point.
struct Rows {
  Tensor codes, grids;

  explicit Rows(const Tensor& x)
      : codes(Tensor::empty(x.shape(), DType::i8)), grids(Tensor::empty({x.dim(0), 2})) {
    cpu::xnnpack_codes(x, codes, grids);
  }
};

// XNNPACK stores the scales of 4-bit weights as bf16 (ENGINES §3), so the product uses the rounded scales.
Tensor rounded_scales(const Tensor& scale) { return scale.to(DType::bf16).to(DType::f32); }

namespace host {

Tensor qc8w(const Tensor& x, const Tensor& codes, const Tensor& scale, const Tensor& bias) {
  const Layer layer{x, codes, scale, bias};
  // Before layer.check, because the expected shape of the scale is read from the codes.
  detail::check_matrix(codes, DType::i8, "the codes", "xnnpack.linear_qd8_qc8w");
  layer.check({codes.dim(0)}, -128, 127, "xnnpack.linear_qd8_qc8w");
  if (x.device().is_meta()) return layer.result(DType::f32);
  const Rows rows(x);
  Tensor y = layer.result(DType::f32), sums = layer.result(DType::i32);
  if (y.numel() == 0) return y;
  detail::run(x.device(), &detail::Kernels::exact_gemm, layer.rows(), layer.outputs(), layer.columns(),
              detail::Codes{rows.codes.raw(), DType::i8, 128}, detail::Codes{codes.raw(), DType::i8, 128},
              sums);
  // sum (q - z) * w = sum q * w - z * sum w: the zero point is applied to finished sums, which are exact in
  // int32.
  const Tensor weights = Tensor::from(cpu::code_sums(codes, layer.columns()), {layer.outputs()});
  cpu::xnnpack_channel_sums(sums, weights, rows.grids, scale, bias, y);
  return y;
}

Tensor qb4w(const Tensor& x, const Tensor& codes, const Tensor& scale, const Tensor& bias,
            std::int64_t block_size, const char* function) {
  const Layer layer{x, codes, scale, bias};
  detail::check_matrix(codes, DType::i8, "the codes", function);
  FQ_CHECK(block_size > 0 && block_size % 32 == 0, function, "blocks of {}: use a multiple of 32",
           block_size);
  detail::check_columns(codes.dim(1), block_size, function);
  const std::int64_t blocks = codes.dim(1) / block_size;
  // Only the sum of a block is an integer; blocks are added in float.
  detail::check_terms(block_size, 255, 8, function);
  layer.check({codes.dim(0), blocks}, -8, 7, function);
  if (x.device().is_meta()) return layer.result(DType::f32);
  const Rows rows(x);
  Tensor y = layer.result(DType::f32);
  if (y.numel() == 0) return y;
  const auto weight = cpu::xnnpack_weight(codes, rounded_scales(scale));
  cpu::xnnpack_block_product(rows.codes, rows.grids, weight, bias, y);
  return y;
}

StaticResult qs8(const Tensor& x, const Tensor& codes, const Tensor& scale, const Tensor& bias,
                 StaticGrid x_grid, StaticGrid y_grid) {
  constexpr const char* where = "xnnpack.linear_qs8";
  const Layer layer{x, codes, scale, bias};
  detail::check_matrix(codes, DType::i8, "the codes", where);
  layer.check({codes.dim(0)}, -128, 127, where);
  StaticResult out{layer.result(DType::i8), layer.result(DType::f32)};
  if (x.device().is_meta()) return out;
  const auto x_zero = static_cast<float>(x_grid.zero_point), y_zero = static_cast<float>(y_grid.zero_point);
  // The engine multiplies by the reciprocal of the scale. A division differs in near-ties (ENGINES §3).
  const float factor = 1.0f / x_grid.scale;
  std::vector<std::int32_t> q;
  for (const float v : x.to_vector<float>())
    q.push_back(detail::xnnpack_code(v, factor, x_zero) - x_grid.zero_point);
  auto* to = out.codes.mutable_data<std::int8_t>();
  auto* y = out.y.mutable_data<float>();
  for (std::int64_t at = 0; at < out.y.numel(); ++at) {
    const std::int64_t m = at / layer.outputs(), n = at % layer.outputs();
    const float sum_scale = x_grid.scale * scale.data<float>()[n];
    const std::int32_t bias_code =
        bias.defined() ? detail::xnnpack_bias_code(layer.bias_value(n), sum_scale) : 0;
    // The bias code may use all of int32. Narrowing the int64 sum gives the bits of the engine's int32
    // addition.
    const std::int64_t sum = std::int64_t{bias_code} +
                             detail::dot(q.data() + m * layer.columns(), layer.weights(n), layer.columns());
    to[at] = detail::xnnpack_sum_code(static_cast<std::int32_t>(sum), sum_scale / y_grid.scale, y_zero);
    y[at] = scalar::linear_value(static_cast<float>(to[at]), y_grid.scale, y_zero);
  }
  return out;
}

void check(const StaticGrid& grid, std::string_view what) {
  constexpr const char* where = "xnnpack.linear_qs8";
  FQ_CHECK(grid.scale > 0 && grid.scale <= std::numeric_limits<float>::max(), where,
           "the scale of the {} is {}: use a positive number", what, grid.scale);
  FQ_CHECK(grid.zero_point >= -128 && grid.zero_point <= 127, where,
           "the zero point of the {} is {}: use -128 to 127", what, grid.zero_point);
}

}  // namespace host
}  // namespace

Tensor linear_qd8_qc8w(const Tensor& x, const Tensor& codes, const Tensor& scale, const Tensor& bias) {
  return detail::through_host(host::qc8w, x, codes, scale, bias);
}

// XNNPACK computes 4-bit weights with one scale per channel as one block of K columns, with a bf16 scale.
Tensor linear_qd8_qc4w(const Tensor& x, const Tensor& codes, const Tensor& scale, const Tensor& bias) {
  constexpr const char* where = "xnnpack.linear_qd8_qc4w";
  detail::check_matrix(codes, DType::i8, "the codes", where);
  detail::check_columns(codes.dim(1), 32, where);
  detail::check_shape(scale, DType::f32, {codes.dim(0)}, "the scale", where);
  return detail::through_host(host::qb4w, x, codes, scale.reshape({codes.dim(0), 1}), bias, codes.dim(1),
                              where);
}

Tensor linear_qd8_qb4w(const Tensor& x, const Tensor& codes, const Tensor& scale, std::int64_t block_size,
                       const Tensor& bias) {
  return detail::through_host(host::qb4w, x, codes, scale, bias, block_size, "xnnpack.linear_qd8_qb4w");
}

StaticResult linear_qs8(const Tensor& x, StaticGrid x_grid, const Tensor& codes, const Tensor& scale,
                        StaticGrid y_grid, const Tensor& bias) {
  host::check(x_grid, "input");
  host::check(y_grid, "output");
  return detail::through_host(host::qs8, x, codes, scale, bias, x_grid, y_grid);
}

}  // namespace fq::xnnpack
