#pragma once

/// The operators that put a value on a grid of codes, and pass gradients as if they had not rounded.
///
///     const auto grid = Grid::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(2));
///     Variable q = ops::quantize(x, grid);
///     q.quantized()->codes;  // i8: clamp(rne(x / (2 / 127)))
///     q.tensor();            // code * scale
///
/// A TensorQuantizer (layers/quantizer/tensor_quantizer.h) chooses the grid and calls these. The functions of
/// other frameworks that compute on floats are in reference/.

#include "fakequant/core/variable.h"

namespace fq {

/// How a learned range is trained.
///
/// - `clip`: as the bounds of a clip, dy summed over x >= amax, less dy summed over x <= -amax (not of
///   unsigned formats).
/// - `lsq`: as the step of LSQ (Esser et al. 2020), dy * (q - x/s) where the gradient of x passes and dy * q
///   elsewhere, summed and divided by bound * sqrt(n * bound), n elements a range.
enum class AmaxGradient : unsigned char { clip, lsq };

namespace ops {

/// A trained range. Its gradient is `factor` times the gradient of the grid's amax. The grid must be made of
/// `amax`, whose value is not read here.
struct LearnedRange {
  Variable amax;  ///< one element for each range of the grid
  /// The kind of gradient, and its factor.
  AmaxGradient gradient = AmaxGradient::clip;
  double factor = 1;
};

/// Codes of x on the grid. The gradient is the clipped straight-through one: dx = dy where the mask
/// is set, 0 elsewhere; with grid.pass_through_bwd dx = dy everywhere. With `learned` the range gets a
/// gradient too.
///
/// A value with codes on the same grid already is returned as it is. Sums not yet rounded go to a per-tensor
/// integer grid in one pass, with their pending ReLU in the mask; everything else is quantized from floats.
/// One value that is quantized twice to one grid (the same scale tensor) gives one node while any consumer
/// holds it, so that readers share codes.
///
/// Throws ArgumentError when the channels do not fit, NumericError naming the quantizer for a NaN.
[[nodiscard]] Variable quantize(const Variable& x, const Grid& grid, const LearnedRange* learned = nullptr);

/// The node of codes that were computed from x before, such as cached codes of a weight: it has the gradient
/// of `quantize`. `codes` must have x's shape, and a mask where x requires a gradient that is to be clipped.
[[nodiscard]] Variable attach_codes(const Variable& x, QuantizedTensor codes);

/// What `quantize` gives, as floats: fl(code * scale), with the same gradient. It is for code that computes
/// on floats; layers that multiply codes take `quantize`.
[[nodiscard]] Variable fake_quantize(const Variable& x, const Grid& grid);

}  // namespace ops
}  // namespace fq
