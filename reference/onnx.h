#pragma once

/// ONNX's QuantizeLinear and DequantizeLinear, with the bits of ONNX Runtime on a CPU.
///
///     const Tensor codes = onnx::quantize_linear(x, 0.05, 128);       // u8, the default
///     const Tensor back = onnx::dequantize_linear(codes, 0.05, 128);
///     const Tensor rows = onnx::quantize_linear(x, scale, zero, 0);   // one scale for each index of axis 0
///
/// They are vectorised by the compiler: they take one to three copies of memory, 8-bit floats in blocks of
/// fewer than 128 elements four.

#include <cstdint>
#include <optional>

#include "fakequant/core/tensor.h"
#include "fakequant/reference/constant.h"

namespace fq::onnx {

/// Codes of `x`. Integers i8, u8, i16, u16 or packed i2, u2, i4, u4 are saturate(rne(x / scale) +
/// zero_point), by a true division in f32, with NaN as the lowest code. Floats f8_e4m3, f8_e5m2 or packed
/// f4_e2m1 are x / scale rounded half to even, where a zero point of f4_e2m1 makes +0 of -0; beyond the
/// largest value they are its code, or, f8 without `saturate`, NaN (E4M3 beyond 464) or infinity (E5M2 from
/// 61440).
///
/// `x` is f32, f16, bf16 or i32; `scale` f32, f16 or bf16, the type of a float x. A scale of one element
/// (rank 0 or 1) is per tensor; a list has one element for each index of `axis`; with `block_size` B it has
/// the shape of x but ceil(D / B) along `axis`; x then has at least 2 axes, and the last block may be
/// shorter. `zero_point` has the scale's shape and the type of the codes (numbers take it), and is 0 for
/// floats. The codes are of `output_dtype`, else of the zero point's type, else u8.
///
/// On `meta` only the shape flows. Codes pass no gradient: a Variable that needs one is refused. Throws
/// ArgumentError for other shapes and types.
[[nodiscard]] Tensor quantize_linear(const Constant& x, const Constant& scale,
                                     const Constant& zero_point = {}, int axis = 1,
                                     std::int64_t block_size = 0, bool saturate = true,
                                     std::optional<DType> output_dtype = {});
/// fl((codes - zero_point) * scale) in f32, then in the type of the scale (of `output_dtype`, where given).
/// Codes are as above, or i32, whose zero point is 0; all else is as above.
[[nodiscard]] Tensor dequantize_linear(const Constant& codes, const Constant& scale,
                                       const Constant& zero_point = {}, int axis = 1,
                                       std::int64_t block_size = 0, std::optional<DType> output_dtype = {});

/// Values that ONNX Runtime 1.32 quantizes at run time, on a CPU: activations, keys and values.
///
///     const auto q = onnx::dynamic_quantize_linear(x);                         // one range for all of x
///     const Tensor y = onnx::dynamic_quantize_matmul(x, weight, scale, bias);  // codes i8 [K, N]
///     const Tensor z = onnx::matmulnbits_level4(x, weight, scale, 32);         // codes i8 [N, K]
///
/// On `meta` only shapes flow, on a GPU the host computes. No gradient passes. Every refusal is an
/// ArgumentError: another dtype or shape, no columns, codes out of range, sums that leave int32. Numbers must
/// be finite; what becomes of others is not specified.

/// Codes u8, their scale (f32) and zero point (u8), both of rank 0.
struct DynamicCodes {
  Tensor codes, scale, zero_point;
};
/// DynamicQuantizeLinear: lo, hi the extremes of all of x (f32) and 0, s = fl(fl(hi - lo) / 255), 1 for
/// zeros, z = rne(clamp(fl(0 - fl(lo / s)), 0, 255)); q = sat(rne(fl(x / s)) + z).
[[nodiscard]] DynamicCodes dynamic_quantize_linear(const Tensor& x);
/// DynamicQuantizeLinear, MatMulInteger and the following operators, fused or not: fl(fl(fl(A) * fl(s *
/// scale)) + bias), A the sum of (q - z) * code, of x f32 [M, K] and codes i8 [K, N]. `scale` is f32 of one
/// element or [N], `bias` f32 [N] or undefined: nothing is added.
[[nodiscard]] Tensor dynamic_quantize_matmul(const Tensor& x, const Tensor& codes, const Tensor& scale,
                                             const Tensor& bias = {});

/// Heads of GroupQueryAttention: query heads h share the key and value head h / (heads / kv_heads).
struct AttentionHeads {
  std::int64_t heads = 1, kv_heads = 1;
};
/// Codes of the cache, i8 [B, KV, S, D], and the result f32 [B, S, heads * D].
struct QuantizedAttention {
  Tensor k_codes, v_codes, y;
};
/// GroupQueryAttention with an int8 cache, causal, with nothing in it before: codes sat(rne(fl(v * fl(1 /
/// s)))), y = softmax(q k^T / sqrt(D)) v of the codes' values, in double (the engine: f32, within 4e-7 of the
/// largest). q is f32 [B, S, heads * D], k and v [B, S, kv_heads * D]; the scales have one element, or [1,
/// kv_heads, 1, D].
[[nodiscard]] QuantizedAttention gqa_int8_kv(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const Tensor& k_scale, const Tensor& v_scale,
                                             AttentionHeads heads);

/// MatMulNBits of accuracy level 4: each row of x is rounded to int8 in blocks along K, s_a = fl(amax / 127),
/// q = rne(fl(x * fl(1 / s_a))); y the sum over blocks of s_a * scale * sum(q * code), in double (the engine:
/// f32, in an order of its processor's, within 2e-6 of the largest). Codes i8 [N, K] of -8 .. 7, `scale` f32
/// [N, ceil(K / block_size)]; block_size is a power of two, 16 or more, and the last block may be shorter.
[[nodiscard]] Tensor matmulnbits_level4(const Tensor& x, const Tensor& codes, const Tensor& scale,
                                        std::int64_t block_size);

}  // namespace fq::onnx
