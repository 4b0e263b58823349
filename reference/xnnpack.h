#pragma once

/// XNNPACK's quantized linear layers (ExecuTorch 1.5.1 on a CPU), with its bits on x86-64 with AVX-512 VNNI.
///
///     const Tensor y = xnnpack::linear_qd8_qc8w(x, weight, scale, bias);      // codes i8 [N, K]
///     const Tensor z = xnnpack::linear_qd8_qb4w(x, weight, scale, 32, bias);  // scale f32 [N, K / 32]
///
/// Dynamic layers (qd8) round each row of x by its own range: lo, hi its extremes and 0, s = fl(255 / fl(hi -
/// lo)), 1 for zeros, z an integer of -128 .. 127 (127 for zeros); q = sat(rne(fl(x * s)) + z). A NaN in x is
/// passed over in the range and gets code -128. On `meta` only shapes flow, on a GPU the host computes. No
/// gradient passes. Every refusal is an ArgumentError: another dtype or shape, no columns, codes out of
/// range, sums that leave int32. `bias` is f32 [N], or undefined: 0.

#include "fakequant/core/tensor.h"

namespace fq::xnnpack {

/// fma(fl(fl(A) * fl(1 / s)), scale, bias), A the sum of (q - z) * code; `scale` f32 [N].
[[nodiscard]] Tensor linear_qd8_qc8w(const Tensor& x, const Tensor& codes, const Tensor& scale,
                                     const Tensor& bias = {});
/// Codes -8 .. 7 with a scale a row: as `linear_qd8_qb4w` with one block. 32 divides K.
[[nodiscard]] Tensor linear_qd8_qc4w(const Tensor& x, const Tensor& codes, const Tensor& scale,
                                     const Tensor& bias = {});
/// Codes -8 .. 7 in blocks along K, `scale` f32 [N, K / block_size], which is rounded to bf16 first.
///
/// k = fl(k - fl(sum of 16 codes * scale)) over the columns; sum = fl(k * (z + 128)), then fma(float(sum of
/// (q
/// + 128) * code), scale, sum) over blocks; y = fl(fl(sum * fl(1 / s)) + bias). 32 divides block_size, which
/// divides K. Processors that multiply signed codes have 0 for 128, and other last bits in up to 8 % of y.
[[nodiscard]] Tensor linear_qd8_qb4w(const Tensor& x, const Tensor& codes, const Tensor& scale,
                                     std::int64_t block_size, const Tensor& bias = {});

/// Scale and zero point, -128 .. 127, of a tensor whose range is fixed.
struct StaticGrid {
  float scale = 1;
  int zero_point = 0;
};
/// Codes i8 and their values, fl((code - zero point) * scale).
struct StaticResult {
  Tensor codes, y;
};
/// Static codes throughout: q = sat(rne(fl(x * fl(1 / s_x))) + z_x), bias codes rne(fl(b * fl(1 / s_xw)))
/// with s_xw = fl(s_x * scale), one multiply by fl(s_xw / s_y). `scale` f32 [N]. Both scales must be
/// positive.
[[nodiscard]] StaticResult linear_qs8(const Tensor& x, StaticGrid x_grid, const Tensor& codes,
                                      const Tensor& scale, StaticGrid y_grid, const Tensor& bias = {});

}  // namespace fq::xnnpack
