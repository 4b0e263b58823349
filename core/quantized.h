#pragma once

/// QuantizedTensor: integer or minifloat codes with their scales, the first form in which a value crosses a
/// layer.
///
///     const Tensor x = Tensor::from<float>({0.5f, -3.0f, 9.0f});
///     const auto grid = Grid::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(4));
///     const QuantizedTensor q = quantize(x, grid);  // codes i8 [16, -95, 127], mask [1, 1, 0]
///     const Tensor y = dequantize(q);               // code * 4 / 127
///
/// These are functions of tensors: ops::quantize (core/ops/quantize.h) is the one that passes gradients.

#include <span>
#include <string>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq {

/// The numbers of a quantizer for kernels: format, ranges and scales of one tensor. A code q stands for
/// q * scale. `from_amax` and `with_scale_bits` make grids whose scales fit their ranges. `amax` and `scale`
/// lie on the device of the values to quantize.
struct Grid {
  Format format;
  /// Which elements share a scale; the last block of an axis may be partial.
  Granularity granularity;
  /// The ranges: f32, non-negative, of rank 0 or one for each block, as a row-major list or in the shape and
  /// layout of the blocks. A gradient passes where |v| <= amax.
  Tensor amax;
  /// The steps of the grid: f32, positive, in the shape of amax.
  Tensor scale;
  /// The storage offset of the exported file, 0 or 128: a file stores q + zero_point. Only additions depend
  /// on it, as the engine's do.
  int zero_point = 0;
  /// The quantizer's name, for messages and files.
  std::string name;
  /// Whether the gradient passes everywhere, outside of the range too.
  bool pass_through_bwd = false;
  /// Every scale is `unit` times a number of `scale_bits` significant bits (1: a power of two); `scale_bits`
  /// is 0 where scales are any floats. Codes of few bits times such a number are bfloat16 numbers, by which
  /// products of blocks can be multiplied.
  float unit = 1;
  int scale_bits = 0;
  bool raised = false;  ///< scales and ranges were raised to powers of two

  /// The grid of given ranges: scale = fl(amax / bound), with the bound of the format.
  ///
  /// Where amax <= 2^-24 the scale is the positive floor fl(2^-24 / bound) and integer codes are 0; E4M3
  /// takes such an amax as 1. With `pow2` the scale is raised to the next power of two and amax with it, so
  /// that mask, codes and files agree. `amax` is copied and becomes f32. Throws ArgumentError naming the
  /// quantizer for a negative, infinite or NaN amax.
  [[nodiscard]] static Grid from_amax(Format format, Granularity granularity, Tensor amax,
                                      std::string name = {}, bool pow2 = false, int zero_point = 0);

  /// The grid of blocks whose scales are themselves numbers of 8 bits (OCP MX, NVFP4).
  ///
  /// - (8,0): the power of two at or above amax / bound, 2^-127 .. 2^127; `global` changes nothing.
  /// - (4,3): scale = fl(c * g), g = fl(global / fl(448 * bound)), c = e4m3(fl(fl(amax / bound) / g)), at
  ///   least 2^-9. `global` is the range of the whole tensor; g is 1 where it is at most 2^-24.
  ///
  /// The amax of the result is fl(scale * bound) where that is larger than the one given. Throws
  /// ArgumentError for other scale bits and as `from_amax`.
  [[nodiscard]] static Grid with_scale_bits(Format format, Granularity granularity, Tensor amax,
                                            NumBits scale_bits, float global, std::string name = {});

  /// The same grid with amax and scale on that device, which must be that of the values to quantize.
  [[nodiscard]] Grid to(Device device) const;
};

/// Codes, their scales and, where a gradient will be asked for, the mask of the elements that pass it. It is
/// immutable; copies share the tensors. All tensors have the codes' logical shape and layout, apart from
/// those of the grid.
struct QuantizedTensor {
  /// One code an element, of type grid.format.code_dtype().
  Tensor codes;
  Grid grid;
  /// u1, in memory order: 1 where a gradient passes. It is undefined when none was asked for.
  Tensor mask;

  /// Shape and layout of the codes, and so of the values.
  [[nodiscard]] const Shape& shape() const noexcept { return codes.shape(); }
  [[nodiscard]] Layout layout() const noexcept { return codes.layout(); }
};

/// The values that the codes stand for, fl(code * scale), in f32 and in the layout of the codes. Throws
/// ArgumentError when the grid's blocks do not fit the shape, and when codes and scales lie on two devices.
[[nodiscard]] Tensor dequantize(const QuantizedTensor& x);
/// The codes as f32: integers, or the values of minifloats, unscaled, in the layout of the codes.
[[nodiscard]] Tensor code_values(const QuantizedTensor& x);
/// Codes and mask of a float tensor in one pass over memory: q = sat(rne(fl(x / s))), and the mask is set
/// where lower <= x <= amax, lower being -amax, or 0 for unsigned formats. An f64 tensor is rounded to f32
/// first; infinities saturate.
///
/// Throws ArgumentError when blocks do not fit, and NumericError naming the quantizer when x has a NaN (its
/// code would be 0, its mask 0); on a GPU that shows when a value is read back next.
[[nodiscard]] QuantizedTensor quantize(const Tensor& x, const Grid& grid, bool with_mask = true);

/// One of several tensors to quantize: the arguments of `quantize`.
struct QuantizeRequest {
  /// The tensor, its grid, and whether a mask is wanted: see `quantize`.
  Tensor x;
  Grid grid;
  bool with_mask = true;
};
/// As `quantize` of each, in their order; on a GPU all of them in one launch. Throws ArgumentError too when
/// they are not all on one device.
[[nodiscard]] std::vector<QuantizedTensor> quantize(std::span<const QuantizeRequest> requests);

/// Whether both give the same codes for any value: they have the same format and granularity, and bitwise
/// equal scales and amax. The name and the zero point do not count.
[[nodiscard]] bool same_grid(const Grid& a, const Grid& b);

/// dy where the mask is set, +0 elsewhere, in the layout of the mask; dy itself for an undefined mask. Throws
/// ArgumentError for another shape, and unless dy is f32, f64, f16 or bf16.
[[nodiscard]] Tensor apply_mask(const Tensor& dy, const Tensor& mask);

/// Packs codes kept one a byte (i8 or u8; the low bits count) as `dtype`. Same shape and layout. Throws
/// ArgumentError for other types.
[[nodiscard]] Tensor pack_codes(const Tensor& codes, DType dtype);
/// One code a byte: i8, sign extended, of i2 and i4; u8, the bits, of the others. Same shape and layout.
/// Throws ArgumentError for a type of 8 bits or more.
[[nodiscard]] Tensor unpack_codes(const Tensor& packed);

/// The type in which codes of that format take the least room: i2 or u2 for integers of 2 bits, i4 or u4 for
/// 3 and 4; for all others that of `Format::code_dtype`.
[[nodiscard]] DType packed_dtype(const Format& format);

}  // namespace fq
