#pragma once

/// Fake quantization and casts with the bits of PyTorch on a CPU.
///
///     const Tensor y = torch_ref::fake_quantize_per_tensor_affine(x, 0.1, 128, 0, 255);
///     const Tensor codes = torch_ref::cast_float8(x, DType::f8_e4m3);  // saturating
///
/// Fake quantization: `x` is f32, f16, bf16 or f64, any layout; arithmetic is f32, the result is rounded to
/// x's dtype. f64 (plain loops) is rounded to codes in double, and its values are f32 products per tensor,
/// products in double per channel. q = rne(x * fl(1/scale)) + zero_point, y = (clamp(q, quant_min, quant_max)
/// - zero_point) * scale, dx = dy * (quant_min <= q <= quant_max), a product: masked negatives give -0. A NaN
/// becomes quant_min and has no gradient.
///
/// f32 is vectorised; loops over 16-bit types, and the cast to E8M0, take five to ten times as long as a
/// copy. On `meta` only shapes flow. Every refusal is an ArgumentError.

#include <cstdint>

#include "fakequant/core/variable.h"

namespace fq::torch_ref {

/// One scale and zero point for all elements; infinities saturate. It refuses quant_min > quant_max and a
/// zero point outside of them.
[[nodiscard]] Tensor fake_quantize_per_tensor_affine(const Tensor& x, double scale, std::int64_t zero_point,
                                                     std::int64_t quant_min, std::int64_t quant_max);
[[nodiscard]] Variable fake_quantize_per_tensor_affine(const Variable& x, double scale,
                                                       std::int64_t zero_point, std::int64_t quant_min,
                                                       std::int64_t quant_max);

/// One scale (f32) and one zero point (an integer type, f32 or f16) for each index of `axis`, counted from
/// the front: both have the shape [size of the axis]. Where q would reach 2^63 it becomes quant_min, as the
/// reference's cast wraps.
///
/// A float zero point may lie outside of the range and is added before rounding: q = rne(fma(x, 1/scale, z))
/// for f32, rne(x * fl(1/scale) + z) for f16, with an f64 x rounded to f32 first; y is then computed in
/// double and rounded once. It rejects other shapes and types, a missing axis, and the input that the
/// per-tensor form rejects.
[[nodiscard]] Tensor fake_quantize_per_channel_affine(const Tensor& x, const Tensor& scale,
                                                      const Tensor& zero_point, int axis,
                                                      std::int64_t quant_min, std::int64_t quant_max);
[[nodiscard]] Variable fake_quantize_per_channel_affine(const Variable& x, const Tensor& scale,
                                                        const Tensor& zero_point, int axis,
                                                        std::int64_t quant_min, std::int64_t quant_max);

/// As per tensor, of an f32 x, with gradients for the scale and the zero point, both f32 of one element.
///
/// The forward pass takes clamp(rne(zero_point)), the backward pass trunc(clamp(zero_point + 0.5)) and q =
/// rne(fma(x, 1/scale, zero_point)). dscale = grad_factor * sum of dy * ((y - x) / scale inside the range,
/// quant_min - z or quant_max - z outside); dzero_point = grad_factor * sum of -scale * dy outside. The sums
/// are exact to double precision. The backward pass is a plain loop.
[[nodiscard]] Variable fake_quantize_learnable_per_tensor_affine(const Variable& x, const Variable& scale,
                                                                 const Variable& zero_point,
                                                                 std::int64_t quant_min,
                                                                 std::int64_t quant_max,
                                                                 double grad_factor = 1);
/// One scale and zero point, f32, for each index of `axis`; the zero point is clamp(rne(zero_point)) both
/// ways, and backward is otherwise as above.
[[nodiscard]] Variable fake_quantize_learnable_per_channel_affine(const Variable& x, const Variable& scale,
                                                                  const Variable& zero_point, int axis,
                                                                  std::int64_t quant_min,
                                                                  std::int64_t quant_max,
                                                                  double grad_factor = 1);

/// Codes of f8_e4m3, f8_e5m2 or f8_e8m0, half to even; `x` is f32, f16 or bf16. NaN is 0x7f, with x's sign.
///
/// - e4m3: beyond 448 the code of 448, or, without `saturate`, NaN beyond 464.
/// - e5m2: beyond 57344 its code, or without `saturate` infinity from 61440 on.
/// - e8m0: |x| to a power of two, mantissas of 1.5 and more up, 0 to 2^-127, infinity and NaN to NaN.
[[nodiscard]] Tensor cast_float8(const Tensor& x, DType dtype, bool saturate = true);
/// The values of such codes, in f32, f16 or bf16.
[[nodiscard]] Tensor decode_float8(const Tensor& codes, DType dtype = DType::f32);
/// x rounded to another of f32, f64, f16 and bf16, half to even; values beyond the largest one become
/// infinity.
[[nodiscard]] Tensor cast_float(const Tensor& x, DType dtype);

}  // namespace fq::torch_ref
