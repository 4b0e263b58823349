#pragma once

/// Quantization operators with a straight-through gradient.
///
///     const auto grid = Grid::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(2));
///     Variable q = ops::quantize(x, grid);
///     q.quantized()->codes;  // i8: clamp(rne(x / (2 / 127)))
///     q.tensor();            // code * scale
///
/// A TensorQuantizer (layers/quantizer/tensor_quantizer.h) chooses the grid and calls these functions.
/// reference/ has the functions of other frameworks that compute on floats.

#include <vector>

#include "fakequant/core/variable.h"

namespace fq {

/// Gradient of a learned range.
///
/// - `clip`: gradient of the bounds of a clip: dy summed over x >= amax, minus dy summed over x <= -amax (the
/// second sum is left out for unsigned formats).
/// - `lsq`: gradient of the step of LSQ (Esser et al. 2020): dy * (q - x/s) where the gradient of x passes
/// and
///   dy * q elsewhere, summed and divided by bound * sqrt(n * bound), with n elements per range.
enum class AmaxGradient : unsigned char { clip, lsq };

namespace ops {

/// A learned range. Its gradient is `factor` times the gradient of the grid's amax. `amax` must be the value
/// the grid was made from; it is not read here.
struct LearnedRange {
  Variable amax;  ///< same number of elements as the grid
  /// Kind of the gradient, and its factor.
  AmaxGradient gradient = AmaxGradient::clip;
  double factor = 1;
};

/// Returns the codes of x on the grid. The gradient is the clipped straight-through gradient: dx = dy where
/// the mask is set, 0 elsewhere. With grid.pass_through_bwd it is dx = dy everywhere. With `learned` the
/// range gets a gradient too.
///
/// A value that already has codes on the same grid is returned unchanged. Sums that are not rounded yet go to
/// a per-tensor integer grid in one pass, with their pending ReLU in the mask. All other values are quantized
/// from floats. Quantizing one value twice to the same grid (the same scale tensor) returns the same node
/// while it is in use, so that readers share codes. With `shared` false each call has a node of its own. Use
/// it for parameters: they outlive a recording, and two recordings cannot run backward through one node.
///
/// Throws ArgumentError if the channels do not fit, and NumericError with the name of the quantizer for a
/// NaN.
[[nodiscard]] Variable quantize(const Variable& x, const Grid& grid, const LearnedRange* learned = nullptr,
                                bool shared = true);

/// Creates the node for codes computed from x before, for example cached codes of a weight. The node
/// has the gradient of `quantize`. `codes` must have the shape of x. They need a mask if x requires a
/// gradient that is to be clipped.
[[nodiscard]] Variable attach_codes(const Variable& x, QuantizedTensor codes);

/// Creates the node for codes of several values, whose codes are joined along axis 0. The mask has the joined
/// shape too. Not for a trace.
[[nodiscard]] Variable attach_joined_codes(const std::vector<Variable>& parts, QuantizedTensor codes);

/// Returns the result of `quantize` as floats, fl(code * scale), with the same gradient. Use it for code that
/// computes on floats. Layers that multiply codes call `quantize`.
[[nodiscard]] Variable fake_quantize(const Variable& x, const Grid& grid);

}  // namespace ops
}  // namespace fq
