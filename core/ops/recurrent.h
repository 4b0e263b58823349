#pragma once

/// Recurrent layers along a sequence.
///
/// `x` f32 or f64 [N, L, I], read as floats; `input` [G*H, I], `hidden` [G*H, H], both biases [G*H] or
/// undefined: the gates' rows in PyTorch's order. The output has the state behind every step, [N, L, H],
/// row-major: with `reverse` steps are taken from the last to the first, each output at its own step. An
/// initial state is [N, H], or undefined for zeros. One operator in a trace. In f32 sigmoid and tanh are the
/// rational functions of ONNX Runtime (numerics/detail/recurrent_formulas-inl.h), and a gate's sum is
/// fl(fl(of the input + of the state) + fl(both biases)), but for the last gate of a GRU. Weights of codes
/// are read as floats, unless an LSTM is told a DynamicRange. Throw ArgumentError for other shapes and a
/// sequence of no steps.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Parameters of one direction of a layer.
struct RecurrentWeights {
  Variable input, hidden;
  Variable input_bias = {}, hidden_bias = {};
};

/// How an LSTM multiplies integers: its input, and its state before each step, become codes of 0 .. 255 by a
/// range of their own, which holds 0 (ONNX's DynamicQuantizeLinear: scale = fl((max - min) / 255), zero =
/// rne(-min / scale), q = sat(rne(x / scale) + zero)), and a sum of products is fl(fl(sum of (q - zero) *
/// q_w) * fl(scale * s_w)). Bit by bit ONNX Runtime's DynamicQuantizeLSTM on one thread: with `tensor` of the
/// same batch, with `sample` of each sample as a batch of its own, which makes no difference between
/// batches. Gradients pass as if nothing had been rounded.
enum class DynamicRange : unsigned char { none, tensor, sample };

/// Whether both weights have the codes that a DynamicRange asks for: integers of up to 8 bits, with one scale
/// or one a row.
[[nodiscard]] bool has_integer_weights(const RecurrentWeights& weights);

/// Gates i, f, g, o of W x + b + R h + c (Hochreiter and Schmidhuber 1997, with a forget gate):
/// cell = sigmoid(f) * cell + sigmoid(i) * tanh(g), h = sigmoid(o) * tanh(cell). Throws ArgumentError for a
/// `range` without integer weights, and then NumericError for a NaN.
[[nodiscard]] Variable lstm(const Variable& x, const RecurrentWeights& weights, const Variable& hidden = {},
                            const Variable& cell = {}, bool reverse = false,
                            DynamicRange range = DynamicRange::none);
/// Gates r, z, n (Cho et al., arXiv:1406.1078), the reset behind the product: n = tanh(W_n x + b_n +
/// sigmoid(r) * (R_n h + c_n)), h = (1 - sigmoid(z)) * n + sigmoid(z) * h.
[[nodiscard]] Variable gru(const Variable& x, const RecurrentWeights& weights, const Variable& hidden = {},
                           bool reverse = false);
/// h = f(W x + b + R h + c), f tanh or, with `relu`, max(0, .) (Elman 1990).
[[nodiscard]] Variable rnn(const Variable& x, const RecurrentWeights& weights, const Variable& hidden = {},
                           bool relu = false, bool reverse = false);

}  // namespace fq::ops
