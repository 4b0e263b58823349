#pragma once

/// Recurrent layers along a sequence.
///
/// `x` is f32 or f64 [N, L, I], converted to floats. `input` is [G*H, I], `hidden` is [G*H, H], and both
/// biases are [G*H] or undefined. Gates are in PyTorch's order. The output is the state after every step, [N,
/// L, H], row-major. With `reverse`, steps run from the last to the first, and each output stays at its own
/// step. An initial state is [N, H], or undefined for zeros. A trace shows one operator. In f32, sigmoid and
/// tanh are the rational functions of ONNX Runtime (numerics/detail/recurrent_formulas-inl.h). The sum of a
/// gate is fl(fl(input sum + state sum) + fl(sum of both biases)), except for the last gate of a GRU.
/// Quantized weights are converted to floats, unless an LSTM gets a DynamicRange. Each function throws
/// ArgumentError for other shapes and for a sequence without steps.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Parameters of one direction of a layer.
struct RecurrentWeights {
  Variable input, hidden;
  Variable input_bias = {}, hidden_bias = {};
};

/// Dynamic quantization in an LSTM with integer weights. The input, and the state before each step, become
/// codes of 0 .. 255. Each has a range of its own that includes 0 (ONNX's DynamicQuantizeLinear: scale =
/// fl((max - min) / 255), zero = rne(-min / scale), q = sat(rne(x / scale) + zero)). A sum of products is
/// fl(fl(sum of (q - zero) * q_w) * fl(scale * s_w)). Results have the bits of ONNX Runtime's
/// DynamicQuantizeLSTM on one thread: `tensor` for the same batch, `sample` for each sample as a batch of its
/// own, which makes results independent of the batch. Gradients ignore the rounding.
enum class DynamicRange : unsigned char { none, tensor, sample };

/// Returns whether both weights have the codes that a DynamicRange requires: integers of up to 8 bits, with
/// one scale or one per row.
[[nodiscard]] bool has_integer_weights(const RecurrentWeights& weights);

/// Long short-term memory with the gates i, f, g, o of W x + b + R h + c (Hochreiter and Schmidhuber 1997,
/// with a forget gate): cell = sigmoid(f) * cell + sigmoid(i) * tanh(g), h = sigmoid(o) * tanh(cell). Throws
/// ArgumentError for a `range` without integer weights. With a range, throws NumericError for a NaN.
[[nodiscard]] Variable lstm(const Variable& x, const RecurrentWeights& weights, const Variable& hidden = {},
                            const Variable& cell = {}, bool reverse = false,
                            DynamicRange range = DynamicRange::none);
/// Gated recurrent unit with the gates r, z, n (Cho et al., arXiv:1406.1078). The reset gate is applied after
/// the product: n = tanh(W_n x + b_n + sigmoid(r) * (R_n h + c_n)), h = (1 - sigmoid(z)) * n + sigmoid(z) *
/// h.
[[nodiscard]] Variable gru(const Variable& x, const RecurrentWeights& weights, const Variable& hidden = {},
                           bool reverse = false);
/// Elman network: h = f(W x + b + R h + c), where f is tanh or, with `relu`, max(0, .) (Elman 1990).
[[nodiscard]] Variable rnn(const Variable& x, const RecurrentWeights& weights, const Variable& hidden = {},
                           bool relu = false, bool reverse = false);

}  // namespace fq::ops
