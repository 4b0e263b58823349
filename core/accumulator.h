#pragma once

/// Accumulator: the unrounded integer result of an operator. Together with QuantizedTensor
/// (core/quantized.h) it is one of the two integer forms of values between layers.
///
/// Two functions read an accumulator, each in one pass and with the arithmetic of the deployed engine:
/// `to_float` and `requantize`. Each reader applies the pending ReLU itself and includes it in its own mask,
/// so several readers of one accumulator all get correct results. Gradients of an accumulator are with
/// respect to its float value before the ReLU.
///
///     const auto grid = Grid::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(4));
///     const Variable y = ops::linear(ops::quantize(x, grid), ops::quantize(x, grid));
///     const Tensor values = to_float(*y.accumulator());               // f32
///     const Tensor codes = requantize(*y.accumulator(), grid).codes;  // i8
///
/// Layers create and read accumulators internally. Users see one when they inspect the value between two
/// layers or write an operator. Below, fl(..) is rounding to f32.

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "fakequant/core/quantized.h"

namespace fq {

namespace detail {
class Deferred;
}

struct Accumulator;

/// Origin of the scale and bias of a product, for code that folds further operations into the layer. The
/// weight scale is s_w = fl(amax / bound), and weight codes lie within -bound .. bound.
struct ProductOrigin {
  Tensor x_scale;  ///< f32 rank 0: s_x
  Tensor amax;     ///< f32: range of the weights, one value or one per channel
  float bound;
  Tensor bias;  ///< f32, one per channel, not rounded; undefined without a bias
  std::int64_t largest_sum;
};

/// Result of a linear layer or convolution: A[.., c] = bq[c] + sum q_x*q_w, exact in int32. The float value
/// is fl(fl(A) * scale[c]).
struct ProductSums {
  Tensor sums;   ///< i32
  Tensor bias;   ///< i32, one per channel: the bias on the accumulator's grid; undefined without a bias
  Tensor scale;  ///< f32, fl(s_x*s_w): rank 0, or one per channel
  /// Axis of the channels, counted from the front.
  int axis = 1;
  std::shared_ptr<const ProductOrigin> origin = {};  ///< null if the scales follow another rule
};

/// Product sums after batch normalization, A = bias + sum. The float value is fma(fl(A), factor[c],
/// shift[c]), rounded once.
struct NormalizedSums {
  Tensor sums;       ///< i32, without the bias of the layer
  Tensor factor;     ///< f32 [channels], of any sign
  Tensor shift;      ///< f32 [channels]
  int axis = 1;      ///< axis of the channels
  Tensor bias = {};  ///< i32 [channels]; undefined without a bias
};

/// Sums of codes over all pixels of a channel (global average pooling). The float value is fl(fl(sum) *
/// fl(s_x / count)).
struct PooledSums {
  Tensor sums;             ///< i32
  Tensor scale;            ///< f32 rank 0: s_x
  std::int64_t count = 1;  ///< pixels
};

/// Window averages, already in float. With t the sum of fl(q*s_x) in (h, w) order and n the number of
/// counted pixels, the value is fl(t / n).
struct Averages {
  Tensor values;  ///< f32
};

/// Sum of two code tensors, in this order. The float value is fl(fl(a*s_a) + fl(b*s_b)).
struct CodeAddition {
  QuantizedTensor a, b;  ///< per tensor, same shape and layout
};

/// Accumulators concatenated along an axis. All parts are rounded to the same grid. Each part may have its
/// own ReLU.
struct AccumulatorConcat {
  std::vector<Accumulator> parts;
  int axis = 1;
};

/// Reshape: keeps the elements in logical row-major order and changes the shape. The number of elements must
/// not change. The result is row-major.
struct ReshapeMove {
  Shape shape;
};

/// Transpose: axis i of the result is axis axes[i] of the tensor. Each axis appears once and is counted from
/// the front. The result is row-major.
struct PermuteMove {
  std::vector<int> axes;
};

/// Slice: elements [begin, end) along an axis counted from the front, in the tensor's layout.
struct CutMove {
  int axis = 0;
  std::int64_t begin = 0, end = 0;
};

/// Gather: element j along an axis (counted from the front) is element from[j], or 0 if from[j] is negative.
/// The layout is unchanged. Padding, nearest-neighbour resizing and index_select are expressed this way.
struct TakeMove {
  int axis = 0;
  std::vector<std::int64_t> from;
};

/// A rearrangement of elements without arithmetic: one of the four moves above.
using Move = std::variant<ReshapeMove, PermuteMove, CutMove, TakeMove>;

/// An accumulator whose elements are rearranged. Rounding happens before the move, so the move rearranges
/// codes and mask instead of floats. The bits equal the result of a reader directly after the layer.
struct AccumulatorMove {
  std::vector<Accumulator> inner;  ///< exactly one
  Move move;
};

/// The result of a float operator on a GPU that its first reader computes (core/detail/deferred.h). It never
/// has a pending ReLU and is in no concatenation or move.
struct DeferredFloats {
  std::shared_ptr<detail::Deferred> result;
};

/// One of the results above, with a flag for a pending ReLU. Immutable; copies share the tensors.
struct Accumulator {
  std::variant<ProductSums, NormalizedSums, PooledSums, Averages, CodeAddition, AccumulatorConcat,
               AccumulatorMove, DeferredFloats>
      value;
  bool relu = false;  ///< pending: applied by the reader

  /// Whether a ReLU is pending here or in a part. Only then does `to_float` return a mask.
  [[nodiscard]] bool any_relu() const;
  /// Whether the values are the floats of an operator instead of integers with scales.
  [[nodiscard]] bool is_deferred() const noexcept { return std::holds_alternative<DeferredFloats>(value); }

  /// Shape of the rounded result.
  [[nodiscard]] Shape shape() const;
  /// Layout of the rounded result; a move may make it row-major.
  [[nodiscard]] Layout layout() const;
  /// Device of the sums and of the rounded result.
  [[nodiscard]] Device device() const;
};

/// Returns the float values in f32 with the ReLU applied, in the accumulator's layout. If `mask` is given,
/// it receives the u1 mask of the elements whose gradient passes the ReLU (value > 0), with ones over parts
/// that have no ReLU. It stays undefined if no ReLU is pending.
[[nodiscard]] Tensor to_float(const Accumulator& x, Tensor* mask = nullptr);

/// Returns the same sums with their elements moved and not rounded. Two consecutive reshapes become one, or
/// none if the second restores the original shape. The move must fit the shape.
[[nodiscard]] Accumulator moved(Accumulator x, const Move& move);

/// Returns codes on a per-tensor integer grid, with one multiplication and one rounding per element: q =
/// sat(rne(fl(A) * fl(scale / s))). Normalized sums need one multiply-add: q = sat(rne(fma(fl(A),
/// fl(factor/s), fl(shift/s)))). On the float value v of `to_float`, the mask is 0 < v <= amax if a ReLU is
/// pending, else lower <= v <= amax. Here lower is -amax, or 0 for unsigned formats.
///
/// Throws ArgumentError for a float format or another granularity. For these, quantize the result of
/// `to_float`.
[[nodiscard]] QuantizedTensor requantize(const Accumulator& x, const Grid& grid, bool with_mask = true);

/// Returns the bias on the grid of the sums: bq[c] = rne(fl(b[c] / scale[c])) in int32. It saturates so that
/// bq plus any sum of magnitude up to `largest_sum` fits int32. `b` is f32 [channels]; `scale` is f32 of
/// rank 0 or [channels]. For a NaN the code is 0 and NumericError is thrown with the message `nan_text`; on
/// a GPU it is thrown at the next read of a value on the host.
[[nodiscard]] Tensor bias_codes(const Tensor& b, const Tensor& scale, std::int64_t largest_sum,
                                const std::string& nan_text = "[bias_codes] the bias has a NaN");

}  // namespace fq
