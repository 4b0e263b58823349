#pragma once

/// Sums not yet rounded on a GPU. As core/backend/cpu/codes/codes.h has them, with its bits.

#include <string>

#include "fakequant/core/accumulator.h"

namespace fq::cuda {

/// Of any kind but a concat or a move. The pending ReLU leaves a NaN for whoever reads it to find.
void accumulator_values(const Accumulator& x, Tensor& out, Tensor* mask);
/// `nan_text` is the message of the alarm where batch normalization multiplies by a NaN or adds one.
void accumulator_codes(const Accumulator& x, QuantizedTensor& out, const std::string& nan_text);
/// As fq::bias_codes; `room` is the largest magnitude of a code.
void bias_codes(const Tensor& b, const Tensor& scale, std::int32_t room, const std::string& nan_text,
                Tensor& out);

}  // namespace fq::cuda
