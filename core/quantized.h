#pragma once

/// QuantizedTensor: integer or minifloat codes with their scales. Together with Accumulator
/// (core/accumulator.h) it is one of the two integer forms of values between layers.
///
///     const Tensor x = Tensor::from<float>({0.5f, -3.0f, 9.0f});
///     const auto grid = Grid::from_amax(IntFormat{}, Granularity::per_tensor(), Tensor::scalar(4));
///     const QuantizedTensor q = quantize(x, grid);  // codes i8 [16, -95, 127], mask [1, 1, 0]
///     const Tensor y = dequantize(q);               // code * 4 / 127
///
/// These functions work on tensors, without gradients. ops::quantize (core/ops/quantize.h) passes gradients.

#include <span>
#include <string>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq {

/// Quantization parameters of one tensor for kernels: format, ranges and scales. The value of a code q is q
/// * scale. `from_amax` and `block_scaled` create grids whose scales fit their ranges. `amax` and `scale`
/// must be on the device of the quantized values.
struct Grid {
  Format format;
  /// The elements that share a scale. The last block of an axis may be partial.
  Granularity granularity;
  /// Ranges: f32, non-negative. Rank 0, or one value per block as a row-major list or in the shape and
  /// layout of the blocks. A gradient passes if |v| <= amax.
  Tensor amax;
  /// Steps of the grid: f32, positive, in the shape of amax.
  Tensor scale;
  /// Storage offset in the exported file, 0 or 128: the file stores q + zero_point. As in the engine, only
  /// additions depend on it.
  int zero_point = 0;
  /// Name of the quantizer, for messages and files.
  std::string name;
  /// Whether the gradient also passes outside of the range.
  bool pass_through_bwd = false;
  /// Every scale is `unit` times a number of `scale_bits` significant bits (1: a power of two). `scale_bits`
  /// is 0 if scales may be any floats. Codes of few bits times these numbers are exact in bfloat16, so block
  /// products can use bf16.
  float unit = 1;
  int scale_bits = 0;
  bool raised = false;  ///< scales and ranges were rounded up to powers of two

  /// Creates a grid from ranges: scale = fl(amax / bound), with the bound of the format.
  ///
  /// For amax <= 2^-24 the scale is the positive minimum fl(2^-24 / bound) and integer codes are 0; E4M3
  /// uses amax = 1 instead. With `pow2`, the scale is raised to the next power of two and amax with it, so
  /// mask, codes and files agree. `amax` is copied as f32. Throws ArgumentError that names the quantizer for
  /// a negative, infinite or NaN amax.
  [[nodiscard]] static Grid from_amax(Format format, Granularity granularity, Tensor amax,
                                      std::string name = {}, bool pow2 = false, int zero_point = 0);

  /// Creates a grid of blocks whose scales have 8 bits (OCP MX, NVFP4).
  ///
  /// - (8,0): the smallest power of two that is at least amax / bound, within 2^-127 .. 2^127; `global` has
  ///   no effect.
  /// - (4,3): scale = fl(c * g), g = fl(global / fl(448 * bound)), c = e4m3(fl(fl(amax / bound) / g)), at
  ///   least 2^-9. `global` is the range of the whole tensor; g is 1 if `global` is at most 2^-24.
  ///
  /// The amax of the result is fl(scale * bound) if this exceeds the given amax. Throws ArgumentError for
  /// other scale bits, and as `from_amax`.
  [[nodiscard]] static Grid block_scaled(Format format, Granularity granularity, Tensor amax,
                                         NumBits scale_bits, float global, std::string name = {});

  /// Returns the grid with amax and scale on `device`, which must be the device of the quantized values.
  [[nodiscard]] Grid to(Device device) const;
};

/// Codes, their scales and, if a gradient is needed, the mask of the elements whose gradient passes.
/// Immutable; copies share the tensors. Codes and mask have the same logical shape and layout. The tensors
/// of the grid may differ.
struct QuantizedTensor {
  /// One code per element, of type grid.format.code_dtype().
  Tensor codes;
  Grid grid;
  /// u1, in memory order: 1 where a gradient passes. Undefined if no mask was requested.
  Tensor mask;
  /// The unscaled codes in bf16, as the products of the backward pass read them. Undefined unless requested.
  Tensor factors = {};

  /// Shape and layout of the codes and the values.
  [[nodiscard]] const Shape& shape() const noexcept { return codes.shape(); }
  [[nodiscard]] Layout layout() const noexcept { return codes.layout(); }
};

/// Returns the values of the codes, fl(code * scale), in f32 and in the layout of the codes. Throws
/// ArgumentError if the grid's blocks do not fit the shape, or if codes and scales are on different devices.
[[nodiscard]] Tensor dequantize(const QuantizedTensor& x);
/// Returns the unscaled codes as f32: integers, or the values of minifloats, in the layout of the codes.
[[nodiscard]] Tensor code_values(const QuantizedTensor& x);
/// Returns codes and mask of a float tensor, in one pass over memory: q = sat(rne(fl(x / s))). The mask is
/// set if lower <= x <= amax, with lower = -amax, or 0 for unsigned formats. An f64 tensor is rounded to f32
/// first. Infinities saturate.
///
/// Throws ArgumentError if blocks do not fit. Throws NumericError that names the quantizer if x has a NaN
/// (code 0, mask 0). On a GPU the NaN is reported at the next read of a value on the host.
[[nodiscard]] QuantizedTensor quantize(const Tensor& x, const Grid& grid, bool with_mask = true);

/// Arguments of one `quantize` call in a batch of tensors.
struct QuantizeRequest {
  /// The tensor, its grid, and whether to compute a mask: see `quantize`.
  Tensor x;
  Grid grid;
  bool with_mask = true;
  /// Whether to compute factors. Only a GPU does, for codes of 8 bits with one scale or scales along one
  /// axis.
  bool with_factors = false;
};
/// Quantizes several tensors, in order; on a GPU all in one launch. Throws ArgumentError as `quantize`, and
/// if the tensors are on different devices.
[[nodiscard]] std::vector<QuantizedTensor> quantize(std::span<const QuantizeRequest> requests);

/// Whether both grids give equal codes for every value: same format, same granularity, and bitwise equal
/// scales and amax. Name and zero point are ignored.
[[nodiscard]] bool same_grid(const Grid& a, const Grid& b);

/// Returns dy where the mask is set and +0 elsewhere, in the layout of the mask; dy itself for an undefined
/// mask. Throws ArgumentError if the shapes differ, or if dy is not f32, f64, f16 or bf16.
[[nodiscard]] Tensor apply_mask(const Tensor& dy, const Tensor& mask);

/// Packs codes of one byte each (i8 or u8; only the low bits count) as `dtype`. Shape and layout stay.
/// Throws ArgumentError for other types.
[[nodiscard]] Tensor pack_codes(const Tensor& codes, DType dtype);
/// Unpacks to one code per byte: sign-extended i8 for i2 and i4, u8 with the raw bits for the others. Shape
/// and layout stay. Throws ArgumentError for a type of 8 bits or more.
[[nodiscard]] Tensor unpack_codes(const Tensor& packed);

/// Returns the smallest storage type for codes of a format: i2 or u2 for 2-bit integers, i4 or u4 for 3 and
/// 4 bits, else `Format::code_dtype`.
[[nodiscard]] DType packed_dtype(const Format& format);

}  // namespace fq
