#pragma once

/// Convolutions of codes that are scaled behind their sums, as convolutions of dequantized floats.

#include "fakequant/export/onnx/model.h"

namespace fq::detail {

/// The model in which Mul(Cast(Add(ConvInteger(q, w, zero), bias)), Mul(scale of q, scale of w)), which the
/// exporter writes, is a Conv of three DequantizeLinear. What is otherwise stays as it is.
[[nodiscard]] OnnxModel with_convolution_pairs(const OnnxModel& model);

}  // namespace fq::detail
