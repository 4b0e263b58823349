#include "fakequant/core/detail/check.h"
#include "fakequant/core/tape.h"
#include "fakequant/reference/detail/clipped.h"
#include "fakequant/reference/detail/rounding.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/detail/torchao_grid.h"
#include "fakequant/reference/torchao.h"

namespace fq::torchao {
namespace {

// Arithmetic of one element. Quantization rounds every operation to P, the promoted type of x and the
// parameters. Dequantization rounds to T, the type of the result. `floating`: the zero point is a value.
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
  // Returns the clamped code without rounding to T.
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
  // Returns q - mid, rounded to P and then to T.
  [[nodiscard]] float centred(float code) const {
    return detail::rounded<T>(detail::rounded<P>(code - middle));
  }
  // Returns the gradient of x: fl(dy * s) * r or / s. These are two roundings and not dy, because torchao
  // differentiates dequantization and quantization in sequence.
  [[nodiscard]] float gradient(float x, float dy, const detail::AffineRow& row) const {
    const Result reached = reaching(x, dy, row);
    using scalar::div_, scalar::mul_;
    return static_cast<float>(floating ? div_(reached, Result{row.scale})
                                       : mul_(reached, Result{row.reciprocal}));
  }
  /// Contribution of the element to the gradient of its scale: by the dequantization, dy times the factor of
  /// the scale, and by the position, straight through its rounding.
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

// Calls f(Steps) for results of type `result` and quantization rounded to `steps`, which is that type or f32.
template <class F>
decltype(auto) visit_steps(DType result, DType steps, const Grid& grid, F&& f) {
  return detail::visit_rounding(result, [&]<class T>(T) {
    const bool same = steps == result;
    if (grid.floating) return same ? f(Steps<T, T, true>(grid.codes)) : f(Steps<float, T, true>(grid.codes));
    return same ? f(Steps<T, T, false>(grid.codes)) : f(Steps<float, T, false>(grid.codes));
  });
}

using detail::AffineRow;

constexpr const char* kQuantize = "quantize_affine";
constexpr const char* kDequantize = "dequantize_affine";
constexpr const char* kFake = "fake_quantize_affine";

// torchao stores uint1 to uint7 in uint8 and rejects int1 to int7 as an output type.
DType code_dtype(IntegerType type, const char* function) {
  FQ_CHECK(type.is_unsigned || type.bits >= 8, function,
           "codes of {} cannot be stored: use int8 with quant_min and quant_max", type.name());
  switch (type.bits) {
    case 16:
      return DType::i16;
    case 32:
      return DType::i32;
    default:
      return type.is_unsigned ? DType::u8 : DType::i8;
  }
}

Tensor fake(const Tensor& x, const Grid& grid) {
  return visit_steps(x.dtype(), grid.steps, grid, [&](const auto& steps) {
    return detail::map_rows(x, grid.block, grid.rows, x.dtype(), [&](float v, const AffineRow& row) {
      return steps.value(steps.code(v, row), row);
    });
  });
}

Tensor input_gradient(const Tensor& x, const Tensor& dy, const Grid& grid) {
  return visit_steps(x.dtype(), grid.steps, grid, [&](const auto& steps) {
    return detail::map_rows(
        x, dy, grid.block, grid.rows, x.dtype(),
        [&](float v, float d, const AffineRow& row, std::int64_t) { return steps.gradient(v, d, row); });
  });
}

Tensor scale_gradient(const Tensor& x, const Tensor& dy, const Grid& grid, const Tensor& scale) {
  // map_rows runs on one thread, so the sums need no lock. The error of sums in double is far below f32.
  std::vector<double> sums(grid.rows.size());
  visit_steps(x.dtype(), grid.steps, grid, [&](const auto& steps) {
    (void)detail::map_rows(x, dy, grid.block, grid.rows, x.dtype(),
                           [&](float v, float d, const AffineRow& row, std::int64_t j) {
                             sums[static_cast<std::size_t>(j)] += steps.scale_slope(v, d, row);
                             return 0.0f;
                           });
  });
  return Tensor::from(sums, scale.shape()).to(scale.dtype());
}

Grid fake_grid(const Tensor& x, const Parameters& p, IntegerType type, const CodeRange& range) {
  check_float(x.dtype(), "input", kFake);
  return make_grid(x.shape(), x.dtype(), p, Codes::of(type, range, kFake), true, kFake);
}

// torchao compares the codes after the clamp, so every code except NaN is inside.
Tensor code_mask(const Tensor& x, const Grid& grid) {
  const Tensor codes = visit_steps(grid.steps, grid.steps, grid, [&](const auto& steps) {
    return detail::map_rows(x, grid.block, grid.rows, DType::f32,
                            [&](float v, const AffineRow& row) { return steps.code(v, row); });
  });
  return detail::make_mask(codes, codes.shape(), [](float code, auto) { return !scalar::is_nan_(code); })
      .to(x.layout());
}

}  // namespace

Tensor quantize_affine(const Tensor& x, const Shape& block_size, const Tensor& scale,
                       const Tensor& zero_point, IntegerType output_dtype, const CodeRange& range,
                       ZeroPointDomain domain) {
  if (detail::needs_host(x))
    return detail::on_host(quantize_affine, x, block_size, scale, zero_point, output_dtype, range, domain);
  check_float(x.dtype(), "input", kQuantize);
  const DType stored = code_dtype(output_dtype, kQuantize);
  const Grid grid = make_grid(x.shape(), x.dtype(), {block_size, scale, zero_point, domain},
                              Codes::of(output_dtype, range, kQuantize), true, kQuantize);
  return visit_steps(grid.steps, grid.steps, grid, [&](const auto& steps) {
    return detail::map_rows(x, grid.block, grid.rows, stored, [&](float v, const AffineRow& row) {
      const float code = steps.code(v, row);
      // An x86 cast of NaN to 8 or 16 bits gives 0.
      return scalar::is_nan_(code) ? 0.0f : code;
    });
  });
}

Tensor dequantize_affine(const Tensor& codes, const Shape& block_size, const Tensor& scale,
                         const Tensor& zero_point, IntegerType input_dtype, const CodeRange& range,
                         ZeroPointDomain domain, DType output_dtype) {
  if (detail::needs_host(codes))
    return detail::on_host(dequantize_affine, codes, block_size, scale, zero_point, input_dtype, range,
                           domain, output_dtype);
  check_float(output_dtype, "output", kDequantize);
  // uint1 to uint7 have no type of their own here, so every integer type is accepted for their codes.
  const bool any = input_dtype.is_unsigned && input_dtype.bits < 8;
  const DType stored = code_dtype(input_dtype, kDequantize);
  FQ_CHECK(any ? !is_floating(codes.dtype()) : codes.dtype() == stored, kDequantize,
           "the codes are {} and input_dtype is {}: use {}", name(codes.dtype()), input_dtype.name(),
           name(stored));
  const Grid grid = make_grid(codes.shape(), output_dtype, {block_size, scale, zero_point, domain},
                              Codes::of(input_dtype, range, kDequantize), false, kDequantize);
  // f32 for P: torchao subtracts mid in f32 before it converts to the output type.
  return visit_steps(output_dtype, DType::f32, grid, [&](const auto& steps) {
    return detail::map_rows(codes, grid.block, grid.rows, output_dtype,
                            [&](float code, const AffineRow& row) { return steps.value(code, row); });
  });
}

Tensor fake_quantize_affine(const Tensor& x, const Shape& block_size, const Tensor& scale,
                            const Tensor& zero_point, IntegerType quant_dtype, const CodeRange& range,
                            ZeroPointDomain domain) {
  if (detail::needs_host(x))
    return detail::on_host<Tensor>(fake_quantize_affine, x, block_size, scale, zero_point, quant_dtype, range,
                                   domain);
  return fake(x, fake_grid(x, {block_size, scale, zero_point, domain}, quant_dtype, range));
}

Variable fake_quantize_affine(const Variable& x, const Shape& block_size, const Variable& scale,
                              const Tensor& zero_point, IntegerType quant_dtype, const CodeRange& range,
                              ZeroPointDomain domain) {
  if (detail::needs_host(x))
    return detail::on_host<Variable>(fake_quantize_affine, x, block_size, scale, zero_point, quant_dtype,
                                     range, domain);
  const Variable v = x.as_float();
  const Tensor scales = scale.tensor();
  Grid grid = fake_grid(v.tensor(), {block_size, scales, zero_point, domain}, quant_dtype, range);
  Tensor y = fake(v.tensor(), grid);
  return detail::record(kFake, std::move(y), {v, scale},
                        [saved = detail::Saved(v.tensor()), grid = std::move(grid), scales,
                         learnt = scale.requires_grad()](const Tensor& dy) {
                          const Tensor& from = saved.get();
                          const Tensor d = dy.to(from.dtype());
                          return std::vector<Tensor>{
                              input_gradient(from, d, grid),
                              learnt ? scale_gradient(from, d, grid, scales) : Tensor()};
                        });
}

std::pair<Tensor, Tensor> fake_quantize_affine_cachemask(const Tensor& x, const Shape& block_size,
                                                         const Tensor& scale, const Tensor& zero_point,
                                                         IntegerType quant_dtype, const CodeRange& range,
                                                         ZeroPointDomain domain) {
  if (detail::needs_host(x))
    return detail::on_host<std::pair<Tensor, Tensor>>(fake_quantize_affine_cachemask, x, block_size, scale,
                                                      zero_point, quant_dtype, range, domain);
  const Grid grid = fake_grid(x, {block_size, scale, zero_point, domain}, quant_dtype, range);
  return {fake(x, grid), code_mask(x, grid)};
}

std::pair<Variable, Tensor> fake_quantize_affine_cachemask(const Variable& x, const Shape& block_size,
                                                           const Variable& scale, const Tensor& zero_point,
                                                           IntegerType quant_dtype, const CodeRange& range,
                                                           ZeroPointDomain domain) {
  if (detail::needs_host(x))
    return detail::on_host<std::pair<Variable, Tensor>>(fake_quantize_affine_cachemask, x, block_size, scale,
                                                        zero_point, quant_dtype, range, domain);
  const Tensor v = x.tensor();
  return {fake_quantize_affine(x, block_size, scale, zero_point, quant_dtype, range, domain),
          code_mask(v, fake_grid(v, {block_size, scale.tensor(), zero_point, domain}, quant_dtype, range))};
}

}  // namespace fq::torchao
