#pragma once

/// Recurrent layers along a sequence.
///
/// `x` f32 or f64 [N, L, I], read as floats; `input` [G*H, I], `hidden` [G*H, H], both biases [G*H] or
/// undefined: the gates' rows in PyTorch's order. The output has the state behind every step, [N, L, H],
/// row-major: with `reverse` steps are taken from the last to the first, each output at its own step. An
/// initial state is [N, H], or undefined for zeros. One operator in a trace. Throw ArgumentError for other
/// shapes and a sequence of no steps.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Parameters of one direction of a layer.
struct RecurrentWeights {
  Variable input, hidden;
  Variable input_bias = {}, hidden_bias = {};
};

/// Gates i, f, g, o of W x + b + R h + c (Hochreiter and Schmidhuber 1997, with a forget gate):
/// cell = sigmoid(f) * cell + sigmoid(i) * tanh(g), h = sigmoid(o) * tanh(cell).
[[nodiscard]] Variable lstm(const Variable& x, const RecurrentWeights& weights, const Variable& hidden = {},
                            const Variable& cell = {}, bool reverse = false);
/// Gates r, z, n (Cho et al., arXiv:1406.1078), the reset behind the product: n = tanh(W_n x + b_n +
/// sigmoid(r) * (R_n h + c_n)), h = (1 - sigmoid(z)) * n + sigmoid(z) * h.
[[nodiscard]] Variable gru(const Variable& x, const RecurrentWeights& weights, const Variable& hidden = {},
                           bool reverse = false);

}  // namespace fq::ops
