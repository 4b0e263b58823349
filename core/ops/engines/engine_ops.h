#pragma once

/// Linear layers whose engine rounds the input as it runs, by ranges of the input itself.
///
///     const Variable codes = quantizer.weight(Variable(weight));  // by a TensorQuantizer
///     const Variable sums = ops::engine_linear(x, codes, bias, RowEngine::xnnpack);

#include "fakequant/core/variable.h"

namespace fq {

/// An engine that quantizes the rows of a layer at run time. fl(..) is rounding to f32.
///
/// - `ggml` (llama.cpp): the weight has 4 or 8 bits in blocks of 32 along K; x becomes Q8_0, y = sum of the
///   blocks in ggml's order (repacked buffers for 4 bits and 8 dividing the outputs, else plain ones), then
///   fl(y + bias).
/// - `xnnpack` (ExecuTorch): x is rounded to int8 by each row; the weight has 8 bits per channel, or up to 4
///   bits per channel or in blocks, a multiple of 32, with scales that bf16 has.
/// - `ort_dynamic` (ONNX Runtime): DynamicQuantizeLinear by all of x, MatMulInteger with a weight of up to 8
///   bits, one scale or one a channel.
/// - `ort_dynamic_samples`: the same with a range for each index of the first axis, as a batch of one has it.
enum class RowEngine : unsigned char { ggml, xnnpack, ort_dynamic, ort_dynamic_samples };
/// "ggml", "xnnpack", "ort_dynamic", "ort_dynamic_samples".
[[nodiscard]] std::string_view name(RowEngine engine) noexcept;
/// Whether the engine multiplies a weight [N, K] of that grid; else `why` becomes the reason.
[[nodiscard]] bool multiplies(RowEngine engine, const Grid& grid, const Shape& weight,
                              std::string* why = nullptr);

namespace ops {

/// y [.., n] of x f32 [.., k], codes w [n, k] and a bias f32 [n], or none, with the bits of the engine; any
/// number of threads. The trace knows it as "linear" with the attribute "engine".
///
/// Gradients are those of the product of what x and w were rounded to, straight through the rounding of x
/// everywhere, as its range is that of x; in the numbers that BackwardScope chooses. Throws ArgumentError for
/// shapes, dtypes and devices that do not fit, and for a weight that the engine does not multiply;
/// NumericError for a NaN in x, on a GPU when a value is read back next.
[[nodiscard]] Variable engine_linear(const Variable& x, const Variable& w, const Variable& bias,
                                     RowEngine engine);

}  // namespace ops
}  // namespace fq

/// GELU with the bits of the engine that computes it from a table.
///
///     const Variable y = ops::ggml_gelu(x);

namespace fq::ops {

/// ggml's on a CPU (llama.cpp's `gpt2`): f16(gelu by tanh of f16(x)), 0 up to -10, x from 10 on. f32 or f64
/// of any shape, as ops::gelu; the trace knows it as "gelu" with the attribute "engine".
///
/// tanh is that of this machine's libm, as the engine takes it. The gradient is that of the function which
/// the table stands for: of ops::gelu by tanh, or of the exact one.
[[nodiscard]] Variable ggml_gelu(const Variable& x, bool approximate_tanh = true);

}  // namespace fq::ops
