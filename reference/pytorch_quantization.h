#pragma once

/// Quantization with the bits of NVIDIA's pytorch-quantization toolkit 2.2.1 (`tensor_quant.py`, `clip.py`),
/// as it computes on a CPU.
///
///     using namespace pytorch_quantization;
///     const auto [codes, s] = tensor_quant(x, 2.5);           // codes -127 .. 127 as floats, s = 127 / 2.5
///     const Tensor y = legacy_fake_tensor_quant(x, 2.5);      // codes / s
///
/// Common to all: `x` is f32, f16 or bf16, any layout; of `tensor_quant` and `legacy_fake_tensor_quant` f64
/// too. Ranges broadcast against x by NumPy's rule; an amax with more axes or elements repeats x, whose
/// gradient is then summed in double. Where ranges are compared with a 16-bit x, one of rank 0 is first
/// rounded to its type. On `meta` only shapes flow. The overloads for a Variable record the gradient. The
/// gradients of bounds and ranges, whose sums are double, are plain loops. Every refusal is an ArgumentError.

#include <optional>

#include "fakequant/core/descriptor.h"
#include "fakequant/core/tensor.h"
#include "fakequant/core/variable.h"

namespace fq::pytorch_quantization {

/// Codes, and the scale that they were multiplied by: x is codes / scale.
template <class T>
struct Quantized {
  /// Codes and scale as the function describes them: Tensors, or Variables that pass gradients.
  T codes;
  T scale;
};

/// codes = clamp(rne(x * s), lo, hi) in f32, s = hi / amax, hi = 2^(num_bits-1+unsigned) - 1, lo = 0, -hi
/// (narrow) or -hi-1; where amax <= 2^-24 they are 0 and the scale is 1. `output_dtype` is the type of the
/// codes: f32 or i32 (NaN becomes 0), by default x's type. The scale is s in the shape of amax, in x's type.
///
/// The codes' gradient passes to x where |x| <= amax; the scale takes a gradient and passes 0. It refuses a
/// negative amax, a negative x when unsigned (unless x has a NaN), an x without elements when unsigned, a
/// scale above 65504 when x is f16, and num_bits outside 1 .. 16.
[[nodiscard]] Quantized<Tensor> tensor_quant(const Tensor& x, const Amax& amax, int num_bits = 8,
                                             bool is_unsigned = false, bool narrow_range = true,
                                             std::optional<DType> output_dtype = {});
[[nodiscard]] Quantized<Variable> tensor_quant(const Variable& x, const Amax& amax, int num_bits = 8,
                                               bool is_unsigned = false, bool narrow_range = true,
                                               std::optional<DType> output_dtype = {});

/// y = codes / scale of `tensor_quant`, in f32, rounded to x's type; the gradient passes where |x| <= amax.
/// It refuses what tensor_quant refuses, but no large scale.
[[nodiscard]] Tensor legacy_fake_tensor_quant(const Tensor& x, const Amax& amax, int num_bits = 8,
                                              bool is_unsigned = false, bool narrow_range = true);
[[nodiscard]] Variable legacy_fake_tensor_quant(const Variable& x, const Amax& amax, int num_bits = 8,
                                                bool is_unsigned = false, bool narrow_range = true);

/// Quantizes with ranges that keep their type. An f64 `x` is computed in double, s in the type of `amax` (f32
/// or f64); scale and y are f64. Other inputs take the ranges as f32.
[[nodiscard]] Quantized<Tensor> tensor_quant(const Tensor& x, const Tensor& amax, int num_bits = 8,
                                             bool is_unsigned = false, bool narrow_range = true,
                                             std::optional<DType> output_dtype = {});
[[nodiscard]] Quantized<Variable> tensor_quant(const Variable& x, const Tensor& amax, int num_bits = 8,
                                               bool is_unsigned = false, bool narrow_range = true,
                                               std::optional<DType> output_dtype = {});
[[nodiscard]] Tensor legacy_fake_tensor_quant(const Tensor& x, const Tensor& amax, int num_bits = 8,
                                              bool is_unsigned = false, bool narrow_range = true);
[[nodiscard]] Variable legacy_fake_tensor_quant(const Variable& x, const Tensor& amax, int num_bits = 8,
                                                bool is_unsigned = false, bool narrow_range = true);

/// Affine, of a range that need not be symmetric: y = (clamp(rne(x / step) - z, lo, -lo - 1) + z) * step,
/// step = (max - min) / (2^num_bits - 1), lo = -2^(num_bits-1), z = rne(min / step) - lo; the gradient passes
/// where min <= x <= max.
///
/// Both ranges have one shape. Where they have rank 0, y has x's type, and every operation on x is rounded to
/// it; otherwise y is f32.
[[nodiscard]] Tensor fake_affine_tensor_quant(const Tensor& x, const Amax& min_range, const Amax& max_range,
                                              int num_bits = 8);
[[nodiscard]] Variable fake_affine_tensor_quant(const Variable& x, const Amax& min_range,
                                                const Amax& max_range, int num_bits = 8);

/// y = max(min(x, clip_value_max), clip_value_min); NaN where one of them is. The gradient passes to x where
/// min < x < max; each bound gets the sum, in double, of the gradients where x <= min, x >= max. Both bounds
/// have one shape, or one of them one element. y is of x's type where both have rank 0, else f32.
[[nodiscard]] Tensor clip(const Tensor& x, const Amax& clip_value_min, const Amax& clip_value_max);
[[nodiscard]] Variable clip(const Variable& x, const Variable& clip_value_min,
                            const Variable& clip_value_max);

}  // namespace fq::pytorch_quantization
