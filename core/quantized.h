#pragma once

/// QuantizedTensor: integer or minifloat codes with their scales, the first form in which a value crosses a
/// layer.

#include <span>
#include <string>
#include <vector>

#include "fakequant/core/blocks/granularity.h"
#include "fakequant/core/descriptor_fields.h"
#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq {

/// How a tensor is quantized: the resolved numbers of a quantizer, for one call.
struct QuantSpec {
  Format format;
  Granularity granularity;  ///< which elements share a scale; the last block of an axis may be partial
  Tensor amax;   ///< f32, rank 0 or one per block, a row-major list or of the shape and layout of the blocks;
                 ///< non-negative
  Tensor scale;  ///< f32, the shape of amax; positive
  int zero_point = 0;  ///< storage offset of the exported file: 0 or 128; only additions depend on it
  std::string name;    ///< of the quantizer, for messages and files
  bool pass_through_bwd = false;  ///< the gradient passes everywhere, outside of the range too
  /// Every scale is `unit` times a number of `scale_bits` significant bits (1: a power of two); 0 where
  /// scales are any floats. Codes of few bits times such a number are bfloat16 numbers.
  float unit = 1;
  int scale_bits = 0;

  /// scale = fl(amax / bound). Where amax <= 2^-24 the scale is the positive floor fl(2^-24 / bound) and
  /// integer codes are 0; E4M3 takes such an amax as 1. With `pow2` the scale is raised to the next power of
  /// two and amax with it, so that mask, codes and files agree. Throws ArgumentError for a negative, infinite
  /// or NaN amax.
  [[nodiscard]] static QuantSpec from_amax(Format format, Granularity granularity, Tensor amax,
                                           std::string name = {}, bool pow2 = false, int zero_point = 0);

  /// Scales that are themselves of 8 bits. (8,0): the power of two at or above amax / bound, 2^-127 .. 2^127.
  /// (4,3): scale = fl(c * g), g = fl(global / fl(448 * bound)), c = e4m3(fl(fl(amax / bound) / g)), at least
  /// 2^-9; g is 1 where global <= 2^-24. `amax` becomes fl(scale * bound) where that is larger. Throws
  /// ArgumentError for other scale bits and as `from_amax`.
  [[nodiscard]] static QuantSpec with_scale_bits(Format format, Granularity granularity, Tensor amax,
                                                 NumBits scale_bits, float global, std::string name = {});

  /// The same with amax and scale on that device, which must be that of the values to quantize.
  [[nodiscard]] QuantSpec to(Device device) const;
};

/// Codes, their scales and, where a gradient will be asked for, the mask of the elements that pass it.
/// Immutable. All tensors have the codes' logical shape and layout, apart from those of the spec.
struct QuantizedTensor {
  Tensor codes;  ///< spec.format.code_dtype()
  QuantSpec spec;
  Tensor mask;  ///< u1, in memory order; undefined when no gradient was asked for

  [[nodiscard]] const Shape& shape() const noexcept { return codes.shape(); }
  [[nodiscard]] Layout layout() const noexcept { return codes.layout(); }
};

/// The values that the codes stand for, fl(code * scale), in f32, in the layout of the codes. Throws
/// ArgumentError when the spec's blocks do not fit the shape.
[[nodiscard]] Tensor dequantize(const QuantizedTensor& x);
/// The codes as f32 integers or minifloat values, unscaled, in the layout of the codes.
[[nodiscard]] Tensor code_values(const QuantizedTensor& x);
/// Codes and mask of a float tensor: q = sat(rne(fl(x / s))). f32; an f64 tensor is rounded to f32 first.
/// Throws NumericError naming the quantizer when x has a NaN (its code would be 0, its mask 0).
[[nodiscard]] QuantizedTensor quantize(const Tensor& x, const QuantSpec& spec, bool with_mask = true);

/// One of several tensors to quantize: the arguments of `quantize`.
struct QuantizeRequest {
  Tensor x;
  QuantSpec spec;
  bool with_mask = true;
};
/// As `quantize` of each, in their order; on a GPU all of them in one launch. Throws ArgumentError too when
/// they are not all on one device.
[[nodiscard]] std::vector<QuantizedTensor> quantize(std::span<const QuantizeRequest> requests);

/// True when both give the same codes for any value: same format and bitwise equal scales and amax.
[[nodiscard]] bool same_grid(const QuantSpec& a, const QuantSpec& b);

/// dy where the mask is set, +0 elsewhere, in the layout of the mask; dy itself for an undefined mask. Throws
/// ArgumentError for another shape, and unless dy is f32, f64, f16 or bf16.
[[nodiscard]] Tensor apply_mask(const Tensor& dy, const Tensor& mask);

/// Packs codes kept one a byte (i8 or u8; the low bits count) as `dtype`. Same shape and layout. Throws
/// ArgumentError for other types.
[[nodiscard]] Tensor pack_codes(const Tensor& codes, DType dtype);
/// One code a byte: i8, sign extended, of i2 and i4; u8, the bits, of the others. Same shape and layout.
/// Throws ArgumentError for a type of 8 bits or more.
[[nodiscard]] Tensor unpack_codes(const Tensor& packed);

/// The type that codes of that format take the least room in: i2 or u2 for integers of 2 bits, i4 or u4 for 3
/// and 4; for all others that of `Format::code_dtype`.
[[nodiscard]] DType packed_dtype(const Format& format);

}  // namespace fq
