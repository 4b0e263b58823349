#pragma once

/// What attention needs beside products: softmax of masked scores, and rotations. Row-major, f32 or f64; rows
/// in parallel, each by one thread.

#include "fakequant/core/backend/attention_rows.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// scores [rows, keys] to probabilities, in place: those of softmax(score * scale + mask) over the keys that
/// a row sees, 0 elsewhere; a row that sees nothing is 0. `mask` is undefined or of the scores' dtype.
void attention_weights(const detail::AttentionRows& rows, const Tensor& mask, Tensor& scores);
/// dp [rows, keys] to the gradient of the scores, in place; `p` are the probabilities.
void attention_weights_backward(const Tensor& p, double scale, Tensor& dp);
/// y = x [.., rows, width] with each pair turned by its row's angle: `table` [rows, pairs, 2] has cosine and
/// sine.
void rotate(const Tensor& x, const Tensor& table, const detail::Rotation& rotation, Tensor& y);

}  // namespace fq::cpu
