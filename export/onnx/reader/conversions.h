#pragma once

/// Layers that give f32 values the behaviour of integers and 16-bit floats.

#include "fakequant/export/onnx/reader/op_import.h"

namespace fq::detail::onnx_ops {

/// Converts `x` as ONNX's Cast does: floats lose their fraction or are rounded to 16 bits, integers beyond a
/// type of 8 or 16 bits wrap. Integers of 32 and 64 bits are exact up to 2^24.
ImportValue converted(const OpImport& op, const ImportValue& x, ElementType from, ElementType to);
/// Removes the fraction where the node computes integers.
ImportValue truncated(const OpImport& op, const ImportValue& x);
/// Wraps `x` where the node computes integers of 8 or 16 bits.
ImportValue wrapped(const OpImport& op, const ImportValue& x);

}  // namespace fq::detail::onnx_ops
