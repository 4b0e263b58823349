#pragma once

/// Linear layers that quantize their input at run time with ranges of the input, bit by bit as an inference
/// engine.
///
///     const Variable codes = quantizer.weight(Variable(weight));  // by a TensorQuantizer
///     const Variable sums = ops::engine_linear(x, codes, bias, RowEngine::xnnpack);

#include "fakequant/core/variable.h"

namespace fq {

/// Inference engine that quantizes the rows of a layer's input at run time. fl(..) is rounding to f32.
///
/// - `ggml` (llama.cpp): the weight has 4 or 8 bits in blocks of 32 along K. x becomes Q8_0. y is the sum of
///   the blocks in ggml's order (repacked buffers for 4 bits and a number of outputs divisible by 8, else
///   plain buffers), then fl(y + bias).
/// - `xnnpack` (ExecuTorch): x is rounded to int8 per row. The weight has 8 bits per channel, or up to 4 bits
///   per channel or in blocks of a multiple of 32, with scales that bf16 represents exactly.
/// - `ort_dynamic` (ONNX Runtime): DynamicQuantizeLinear with one range for all of x, then MatMulInteger with
///   a weight of up to 8 bits, with one scale or one per channel.
/// - `ort_dynamic_samples`: the same with a range for each index of the first axis, as in a batch of one.
enum class RowEngine : unsigned char { ggml, xnnpack, ort_dynamic, ort_dynamic_samples };
/// Returns "ggml", "xnnpack", "ort_dynamic" or "ort_dynamic_samples".
[[nodiscard]] std::string_view name(RowEngine engine) noexcept;
/// Returns whether the engine supports a weight [N, K] with this grid. If not, sets `why` to the reason.
[[nodiscard]] bool multiplies(RowEngine engine, const Grid& grid, const Shape& weight,
                              std::string* why = nullptr);

namespace ops {

/// Returns y [.., n] for x f32 [.., k], codes w [n, k] and a bias f32 [n] or none, with the bits of the
/// engine for any number of threads. In a trace it is "linear" with the attribute "engine".
///
/// The gradient is computed from the rounded x and w. It passes the rounding of x everywhere, because
/// the range is computed from x. BackwardScope chooses the number format. Throws ArgumentError for shapes,
/// dtypes and devices that do not fit, and for a weight that the engine does not support. Throws NumericError
/// for a NaN in x; on a GPU when a value is read back next.
[[nodiscard]] Variable engine_linear(const Variable& x, const Variable& w, const Variable& bias,
                                     RowEngine engine);

}  // namespace ops
}  // namespace fq

/// GELU with the bits of an engine that uses a lookup table.
///
///     const Variable y = ops::ggml_gelu(x);

namespace fq::ops {

/// Returns the GELU of ggml on a CPU (llama.cpp's `gpt2`): f16(tanh GELU of f16(x)), 0 for x <= -10, and x
/// for x >= 10. x is f32 or f64 of any shape, as in ops::gelu. In a trace it is "gelu" with the attribute
/// "engine".
///
/// tanh comes from the libm of this machine, as in the engine. The gradient is computed from the function
/// behind the table: ops::gelu with tanh, or the exact one.
[[nodiscard]] Variable ggml_gelu(const Variable& x, bool approximate_tanh = true);

}  // namespace fq::ops
