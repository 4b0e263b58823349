#pragma once

/// The operators that put a value on a grid of codes, and pass gradients as if they had not rounded.
///
///     const auto spec = QuantSpec::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(2));
///     Variable q = ops::quantize(x, spec);
///     q.quantized()->codes;  // i8: clamp(rne(x / (2 / 127)))
///     q.tensor();            // code * scale

#include "fakequant/core/variable.h"

namespace fq {

/// How a learned range is trained. `clip`: as the bounds of clip, dy summed over x >= amax, less dy summed
/// over x <= -amax (not of unsigned formats). `lsq`: as the step of LSQ (Esser et al. 2020), dy * (q - x/s)
/// where the gradient of x passes, dy * q elsewhere, summed, divided by bound * sqrt(n * bound), n elements a
/// range.
enum class AmaxGradient : unsigned char { clip, lsq };

namespace ops {

/// A range that is trained: its gradient is `factor` times that of the amax of the spec.
struct LearnedRange {
  Variable amax;  ///< as many elements as the spec has
  AmaxGradient gradient = AmaxGradient::clip;
  double factor = 1;
};

/// Codes of x on the grid of `spec`, whose gradient is the clipped straight-through one: dx = dy where the
/// mask is set, everywhere with spec.pass_through_bwd. A value with codes on the same grid already is
/// returned as it is. Sums not yet rounded go to a per-tensor integer grid in one pass, with their pending
/// ReLU in the mask; everything else is quantized from floats. One value quantized twice to one spec (the
/// same scale tensor) gives one node while any consumer holds it. With `learned` the range gets a gradient
/// too. Throws ArgumentError when the channels do not fit, NumericError naming the quantizer for a NaN.
[[nodiscard]] Variable quantize(const Variable& x, const QuantSpec& spec,
                                const LearnedRange* learned = nullptr);

/// The node of codes that were computed from x before (cached weights): same gradient as `quantize`.
/// `codes` must have x's shape, and a mask where x requires a gradient.
[[nodiscard]] Variable attach_codes(const Variable& x, QuantizedTensor codes);

/// What `quantize` gives, as floats: fl(code * scale), with the same gradient.
[[nodiscard]] Variable fake_quantize(const Variable& x, const QuantSpec& spec);

}  // namespace ops
}  // namespace fq
