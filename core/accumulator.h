#pragma once

/// Accumulator: an integer result that nobody has rounded yet, the second form in which a value crosses a
/// layer.
///
/// It can do two things, each in one pass by the arithmetic of the deployed engine: `to_float` and
/// `requantize`. Whichever reader rounds it applies the pending ReLU and puts it into its own mask, so that
/// any number of consumers is right. Gradients of an accumulator are with respect to its float value before
/// the ReLU.
///
///     const auto grid = Grid::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(4));
///     const Variable y = ops::linear(ops::quantize(x, grid), ops::quantize(x, grid));
///     const Tensor values = to_float(*y.accumulator());               // f32
///     const Tensor codes = requantize(*y.accumulator(), grid).codes;  // i8
///
/// Layers make and read accumulators by themselves; a user meets one when looking at what crosses a layer, or
/// when writing an operator. fl(..) is rounding to f32 below.

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "fakequant/core/quantized.h"

namespace fq {

struct Accumulator;

/// What the scale and the bias of sums were made of, for whoever folds more into the layer: s_w = fl(amax /
/// bound), codes of weights within -bound .. bound.
struct ProductOrigin {
  Tensor x_scale;  ///< f32 rank 0: s_x
  Tensor amax;     ///< f32: of the weights, one or one per channel
  float bound;
  Tensor bias;  ///< f32, one per channel, not rounded; undefined for none
  std::int64_t largest_sum;
};

/// The result of linear layers and convolutions: A[.., c] = bq[c] + sum q_x*q_w, exact in int32; its value is
/// fl(fl(A) * scale[c]).
struct ProductSums {
  Tensor sums;   ///< i32
  Tensor bias;   ///< i32, one per channel: the bias on the accumulator's grid; undefined for none
  Tensor scale;  ///< f32, fl(s_x*s_w): rank 0, or one per channel
  /// The axis of the channels, counted from the front.
  int axis = 1;
  std::shared_ptr<const ProductOrigin> origin = {};  ///< null where scales follow another rule
};

/// Sums of products that went through batch normalization, A = bias + sum; the value is fma(fl(A), factor[c],
/// shift[c]), rounded once.
struct NormalizedSums {
  Tensor sums;       ///< i32, without the bias of the layer
  Tensor factor;     ///< f32 [channels], of any sign
  Tensor shift;      ///< f32 [channels]
  int axis = 1;      ///< of the channels
  Tensor bias = {};  ///< i32 [channels]; undefined for none
};

/// Sums of codes over all pixels of a channel (global average pooling); the value is fl(fl(sum) * fl(s_x /
/// count)).
struct PooledSums {
  Tensor sums;             ///< i32
  Tensor scale;            ///< f32 rank 0: s_x
  std::int64_t count = 1;  ///< pixels
};

/// Window averages, which are floats already: t is the sum of fl(q*s_x) in (h, w) order, the value fl(t / n),
/// n the pixels that count.
struct Averages {
  Tensor values;  ///< f32
};

/// The sum of two code tensors, in their order; the value is fl(fl(a*s_a) + fl(b*s_b)).
struct CodeAddition {
  QuantizedTensor a, b;  ///< per tensor, same shape and layout
};

/// Accumulators side by side along an axis, all of which are rounded to the same grid; each may have a ReLU
/// of its own.
struct AccumulatorConcat {
  std::vector<Accumulator> parts;
  int axis = 1;
};

/// A reshape: the same elements in logical row-major order in another shape of as many; the result is
/// row-major.
struct ReshapeMove {
  Shape shape;
};

/// A transpose: the result's axis i is the tensor's axis axes[i], each named once and counted from the front;
/// the result is row-major.
struct PermuteMove {
  std::vector<int> axes;
};

/// A slice: elements [begin, end) along an axis counted from the front, in the tensor's layout.
struct CutMove {
  int axis = 0;
  std::int64_t begin = 0, end = 0;
};

/// A choice: element j along an axis, counted from the front, is element from[j], or 0 where that is
/// negative; in the tensor's layout. Padding, resizing by the nearest and index_select are of this kind.
struct TakeMove {
  int axis = 0;
  std::vector<std::int64_t> from;
};

/// Where the elements of a tensor go when nothing is computed: one of the four.
using Move = std::variant<ReshapeMove, PermuteMove, CutMove, TakeMove>;

/// An accumulator whose elements are moved. They are rounded where they were before, so that codes and mask,
/// not floats, are what is moved, with the bits that a reader right behind the layer would have got.
struct AccumulatorMove {
  std::vector<Accumulator> inner;  ///< exactly one
  Move move;
};

/// One of the results above, and whether a ReLU is pending. It is immutable; copies share the tensors in it.
struct Accumulator {
  std::variant<ProductSums, NormalizedSums, PooledSums, Averages, CodeAddition, AccumulatorConcat,
               AccumulatorMove>
      value;
  bool relu = false;  ///< pending: the reader applies it

  /// Whether a ReLU is pending, here or in a part: only then has `to_float` a mask.
  [[nodiscard]] bool any_relu() const;

  /// Shape of the result that rounding it gives.
  [[nodiscard]] Shape shape() const;
  /// Layout of that result: a move may make it row-major.
  [[nodiscard]] Layout layout() const;
  /// Where the sums lie, and the result will.
  [[nodiscard]] Device device() const;
};

/// The float values with the ReLU applied, f32, in the accumulator's layout. `mask`, when given, receives
/// where the ReLU passes a gradient: u1, value > 0, all ones over a part that has none; it stays undefined
/// when no ReLU is pending.
[[nodiscard]] Tensor to_float(const Accumulator& x, Tensor* mask = nullptr);

/// The same sums, moved without being rounded. A reshape of a reshape becomes one, and none where it gives
/// back the first shape. The move must fit the shape.
[[nodiscard]] Accumulator moved(Accumulator x, const Move& move);

/// Codes on an integer grid per tensor, with one multiply and one rounding an element, q = sat(rne(fl(A) *
/// fl(scale / s))); normalized sums take one multiply-add, q = sat(rne(fma(fl(A), fl(factor/s),
/// fl(shift/s)))). The mask is 0 < v <= amax with a pending ReLU, else lower <= v <= amax (lower is -amax, or
/// 0 for unsigned formats), on the float value v of `to_float`.
///
/// Throws ArgumentError for a float format or another granularity: quantize the floats of `to_float` then.
[[nodiscard]] QuantizedTensor requantize(const Accumulator& x, const Grid& grid, bool with_mask = true);

/// The bias on the grid of sums: bq[c] = rne(fl(b[c] / scale[c])) in int32, saturated so that bq + any sum of
/// up to `largest_sum` in magnitude stays in int32. `b` is f32 [channels], `scale` f32 of rank 0 or
/// [channels]. A NaN becomes 0 and throws NumericError with the words `nan_text`; on a GPU it is thrown at
/// the next value that is read back.
[[nodiscard]] Tensor bias_codes(const Tensor& b, const Tensor& scale, std::int64_t largest_sum,
                                const std::string& nan_text = "[bias_codes] the bias has a NaN");

}  // namespace fq
