#pragma once

/// Steps of recurrent layers, and codes with ranges of their own.

#include <string>

#include "fakequant/core/backend/recurrent_call.h"

namespace fq::cpu {

/// The gates of one step, in place, and the state behind it. f32 by the rational functions of
/// recurrent_formulas-inl.h, f64 by those of the standard library. The same bits for any number of threads.
void recurrent_step(detail::RecurrentStep& step);
void recurrent_step_backward(detail::RecurrentStepBackward& step);

/// Codes (u8) of rows of x [R, W], f32, and `grids` f32 [G, 2], scale and zero point: row r is of range
/// r % G, which holds 0 and all of its rows. A NaN throws NumericError with `nan_text`.
void dynamic_codes(const Tensor& x, Tensor& codes, Tensor& grids, const std::string& nan_text);
/// Their values, f32.
void dynamic_values(const Tensor& codes, const Tensor& grids, Tensor& out);
/// out[r, c] = fl(fl(sums[r, c] - zero * weights[c]) * fl(scale * w_scale[c])): of i32 sums of products of
/// such codes with those of weights, which sum up to `weights` [C]; `w_scale` has one element or C.
void dynamic_sums(const Tensor& sums, const Tensor& weights, const Tensor& grids, const Tensor& w_scale,
                  Tensor& out);

}  // namespace fq::cpu
