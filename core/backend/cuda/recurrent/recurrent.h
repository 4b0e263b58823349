#pragma once

/// As core/backend/cpu/recurrent/recurrent.h, with its bits in f32.

#include <string>

#include "fakequant/core/backend/recurrent_call.h"

namespace fq::cuda {

void recurrent_step(fq::detail::RecurrentStep& step);
void recurrent_step_backward(fq::detail::RecurrentStepBackward& step);
/// A NaN raises the alarm `nan_text`.
void dynamic_codes(const Tensor& x, Tensor& codes, Tensor& grids, const std::string& nan_text);
void dynamic_values(const Tensor& codes, const Tensor& grids, Tensor& out);
void dynamic_sums(const Tensor& sums, const Tensor& weights, const Tensor& grids, const Tensor& w_scale,
                  Tensor& out);

}  // namespace fq::cuda
