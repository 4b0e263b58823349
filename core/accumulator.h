#pragma once

/// Accumulator: an integer result that nobody has rounded yet, the second form in which a value crosses a
/// layer.
///
/// It can do two things, each in one pass by the arithmetic of the deployed engine: `to_float` and
/// `requantize`. Whichever reader rounds it applies the pending ReLU and puts it into its own mask, so any
/// number of consumers is right. Gradients of an accumulator are with respect to its float value before the
/// ReLU.

#include <cstdint>
#include <variant>
#include <vector>

#include "fakequant/core/quantized.h"

namespace fq {

struct Accumulator;

/// A[.., c] = bq[c] + sum q_x*q_w, exact in int32; its value is fl(fl(A) * scale[c]).
struct ProductSums {
  Tensor sums;   ///< i32
  Tensor bias;   ///< i32, one per channel: the bias on the accumulator's grid; undefined for none
  Tensor scale;  ///< f32, fl(s_x*s_w): rank 0, or one per channel
  int axis = 1;  ///< of the channels
};

/// Sums of products through batch normalization; value fma(fl(A), factor[c], shift[c]).
struct NormalizedSums {
  Tensor sums;    ///< i32, without a bias
  Tensor factor;  ///< f32 [channels], of any sign
  Tensor shift;   ///< f32 [channels]
  int axis = 1;   ///< of the channels
};

/// Sums of codes over all pixels of a channel (global average pooling); value fl(fl(sum) * fl(s_x / count)).
struct PooledSums {
  Tensor sums;             ///< i32
  Tensor scale;            ///< f32 rank 0: s_x
  std::int64_t count = 1;  ///< pixels
};

/// Window averages, already float: t = sum of fl(q*s_x) in (h, w) order, value fl(t / n).
struct Averages {
  Tensor values;  ///< f32
};

/// The sum of two code tensors in their order; value fl(fl(a*s_a) + fl(b*s_b)).
struct CodeAddition {
  QuantizedTensor a, b;  ///< per tensor, same shape and layout
};

/// Accumulators side by side along an axis, all rounded to the same grid; each may have a ReLU of its own.
struct AccumulatorConcat {
  std::vector<Accumulator> parts;
  int axis = 1;
};

/// A reshape: the same elements in logical row-major order in another shape of as many; row-major.
struct ReshapeMove {
  Shape shape;
};

/// A transpose: the result's axis i is the tensor's axis axes[i], each named once from the front; row-major.
struct PermuteMove {
  std::vector<int> axes;
};

/// A slice: elements [begin, end) along an axis counted from the front, in the tensor's layout.
struct CutMove {
  int axis = 0;
  std::int64_t begin = 0, end = 0;
};

/// Element j along an axis, counted from the front, is element from[j], or 0 where that is negative; in the
/// tensor's layout.
struct TakeMove {
  int axis = 0;
  std::vector<std::int64_t> from;
};

/// Where the elements of a tensor go when nothing is computed.
using Move = std::variant<ReshapeMove, PermuteMove, CutMove, TakeMove>;

/// An accumulator whose elements are moved: they are rounded where they were, so that codes and mask, not
/// floats, are what is moved.
struct AccumulatorMove {
  std::vector<Accumulator> inner;  ///< exactly one
  Move move;
};

/// One of the results above, and whether a ReLU is pending. Immutable; copies share the tensors in it.
struct Accumulator {
  std::variant<ProductSums, NormalizedSums, PooledSums, Averages, CodeAddition, AccumulatorConcat,
               AccumulatorMove>
      value;
  bool relu = false;  ///< pending: the reader applies it

  /// Whether a ReLU is pending, here or in a part.
  [[nodiscard]] bool any_relu() const;

  /// Shape, layout and device of the result that rounding it gives.
  [[nodiscard]] Shape shape() const;
  [[nodiscard]] Layout layout() const;
  [[nodiscard]] Device device() const;
};

/// The float values with the ReLU applied, f32. `mask`, when given, receives where the ReLU passes a gradient
/// (u1, value > 0; all of a part that has none), and stays undefined when none is pending.
[[nodiscard]] Tensor to_float(const Accumulator& x, Tensor* mask = nullptr);

/// The same sums, moved; a reshape of a reshape is one, and none where it gives back the first shape. The
/// move must fit the shape.
[[nodiscard]] Accumulator moved(Accumulator x, const Move& move);

/// Codes for an integer format per tensor, one multiply (of normalized sums one multiply-add: q =
/// sat(rne(fma(fl(A), fl(factor/s), fl(shift/s))))) and one rounding an element; the mask is
/// 0 < v <= amax with a pending ReLU, else lower <= v <= amax, on the float value v of `to_float`.
/// Throws ArgumentError for a float format or another granularity.
[[nodiscard]] QuantizedTensor requantize(const Accumulator& x, const QuantSpec& spec, bool with_mask = true);

/// bq[c] = rne(fl(b[c] / sxw[c])) in int32, saturated so that bq + any sum of up to `largest_sum` stays in
/// int32. `b` f32 [channels], `scale` f32 rank 0 or [channels].
[[nodiscard]] Tensor bias_codes(const Tensor& b, const Tensor& scale, std::int64_t largest_sum);

}  // namespace fq
