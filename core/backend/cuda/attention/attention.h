#pragma once

/// What attention needs beside products, as fq::cpu has it; sums are made in f64.

#include "fakequant/core/backend/attention_rows.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

void attention_weights(const fq::detail::AttentionRows& rows, const Tensor& mask, Tensor& scores);
void attention_weights_backward(const Tensor& p, double scale, Tensor& dp);
void rotate(const Tensor& x, const Tensor& table, const fq::detail::Rotation& rotation, Tensor& y);

}  // namespace fq::cuda
