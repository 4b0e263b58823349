#pragma once

/// ggml's blocks and products (llama.cpp on a CPU), with the bits of ggml 0.25.3 on x86-64: 32 numbers along
/// the last axis share an f16 step.
///
///     const ggml::Blocks weight = ggml::quantize_q4_0(w);          // w f32 [N, K], K a multiple of 32
///     const Tensor file = ggml::pack_q4_0(weight);                  // u8 [N, K / 32 * 18], as GGUF has them
///     const Tensor y = ggml::matmul_q4_0_q8_0(x, weight);           // x f32 [M, K], y f32 [M, N]
///
/// Numbers must be finite: what becomes of others, and of blocks whose step is 2^-128 or less, ggml does not
/// define; here they saturate, and a NaN gets the lowest code. On `meta` only shapes flow, on a GPU the host
/// computes. No gradient passes. Every refusal is an ArgumentError: another dtype, other than 2 axes, no
/// columns, or columns that 32 does not divide.

#include <string_view>

#include "fakequant/core/tensor.h"

namespace fq::ggml {

/// The value of a code is code * scale: `codes` i8 [rows, K], `scale` f16 [rows, K / 32].
struct Blocks {
  Tensor codes, scale;
};

/// Codes -8 .. 7: d = fl(m / -8), m the number of the largest magnitude, with its sign, the first of equals;
/// min(15, trunc(fl(fl(x * fl(1 / d)) + 8.5))) - 8. The scale is f16(d), and may be negative; -0 of zeros.
[[nodiscard]] Blocks quantize_q4_0(const Tensor& x);
/// Codes -127 .. 127, half away from zero: d = fl(amax / 127), round(fl(x * fl(1 / d))).
[[nodiscard]] Blocks quantize_q8_0(const Tensor& x);
/// The same step with the rounding of activations at run time: rne(fl(x * fl(127 / amax))).
[[nodiscard]] Blocks quantize_q8_0_activation(const Tensor& x);

/// The bytes of a file, u8 [rows, K / 32 * 18]: of each block the scale, then byte j with code j + 8 in its
/// low nibble and code j + 16 in the high one. It refuses codes beyond -8 .. 7.
[[nodiscard]] Tensor pack_q4_0(const Blocks& blocks);
/// u8 [rows, K / 32 * 34]: of each block the scale, then the codes.
[[nodiscard]] Tensor pack_q8_0(const Blocks& blocks);
/// Back: of u8 [rows, bytes], whole blocks.
[[nodiscard]] Blocks unpack_q4_0(const Tensor& bytes);
[[nodiscard]] Blocks unpack_q8_0(const Tensor& bytes);

/// Memory layout of the engine's weights, which determines the order of its sums.
enum class Buffer : unsigned char {
  plain,  ///< 8 lanes of 4 products a block, each a chain of fma, folded (4 + 0, .. then 0 + 2, 1 + 3, 0 + 1)
  repack,  ///< CPU_REPACK: fma(float(S_b), d_a * d_w, sum) over blocks; Q4_0 whose rows are a multiple of 8
};
/// "plain" or "repack". Throws ArgumentError for another name.
[[nodiscard]] Buffer buffer(std::string_view name);

/// y [M, N] = x [M, K] by the rows of a weight [N, K] of codes -8 .. 7; x is rounded by
/// `quantize_q8_0_activation`. There is no bias: ggml adds it on its own, y = fl(y + b).
[[nodiscard]] Tensor matmul_q4_0_q8_0(const Tensor& x, const Blocks& weight, Buffer buffer = Buffer::plain);
/// The product with codes -127 .. 127, in plain buffers (the only kind on x86-64).
[[nodiscard]] Tensor matmul_q8_0(const Tensor& x, const Blocks& weight);

}  // namespace fq::ggml
