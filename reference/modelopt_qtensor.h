#pragma once

/// Packed tensors with the bits of NVIDIA ModelOpt's `torch/quantization/qtensor/`, as it computes on a CPU.
///
///     const modelopt::QTensor packed = modelopt::nvfp4_qtensor(x);  // x [.., K], K a multiple of 16
///     packed.codes;                                                 // f4_e2m1, two a byte
///     packed.scale;                                                 // f8_e4m3, one for 16 elements
///     const Tensor back = packed.dequantize(DType::bf16);
///
/// Common to all: `x` is f32, f16 or bf16, any layout (codes are row-major). Where x is 16-bit, scales have
/// its type and every operation is rounded to it, unless f32 is said. amax is the largest |x| of a block, NaN
/// where there is one. Ties round to even. A block of the last axis, or of the flattened x, that is not full
/// is padded with zeros on the right. On `meta` only shapes flow.
///
/// These are plain loops, for weights, which are packed once; nothing passes a gradient. Every refusal is an
/// ArgumentError; x without elements is refused where a scale could not be found.

#include <map>
#include <optional>

#include "fakequant/core/descriptor_fields.h"
#include "fakequant/core/tensor.h"

namespace fq::modelopt {

/// The format of the codes, each made by the function of its name.
enum class PackedFormat : unsigned char { int8, fp8, int4, nvfp4, mxfp4, mxfp8, nf4 };

/// What one of the functions below gives: codes, their scales, and what it was made from.
struct QTensor {
  PackedFormat format;
  Shape shape;  ///< of x
  DType dtype;  ///< of x
  /// The codes, packed as the function of the format says.
  Tensor codes;
  /// What codes are multiplied by (INT4: divided), one a block or axis.
  Tensor scale;
  Tensor scale2 = {};        ///< nvfp4: f32, rank 0
  Tensor scale_codes = {};   ///< nf4: i8 [blocks of scales, scale_block_size]
  Tensor double_scale = {};  ///< nf4: what a block of scales was multiplied by
  Tensor scale_zero = {};    ///< nf4: the mean of all scales, rank 0
  Shape block = {};          ///< elements along each axis that share a scale; of the flattened x: one size

  /// The values in x's shape, without padding; f32, f16 or bf16, x's type unless said. Each function says
  /// how.
  [[nodiscard]] Tensor dequantize(std::optional<DType> dtype = {}) const;
};

/// Axis -> elements that share a scale.
using BlockLengths = std::map<int, std::int64_t>;

/// INT8: codes i8 = clamp(rne(x / s), -128, 127), s = amax / 127; 0 for NaN. y = codes * s.
///
/// There is one scale for each index of the kept axes, which keep their size in its shape (rank 0 where that
/// is one element, or where no axis is left to reduce); or one a block, and then codes keep the padding. It
/// refuses axis and blocks together, an axis that x does not have or that is named twice, and lengths outside
/// 1 .. 2^24.
[[nodiscard]] QTensor int8_qtensor(const Tensor& x, const Axes& axis = {}, const BlockLengths& blocks = {});
/// FP8: codes f8_e4m3 of x / s, s = amax / 448, saturating, in the shape of x; a zero block has NaN codes for
/// its zeros. y = codes * s. Scales and refusals are those of int8_qtensor.
[[nodiscard]] QTensor fp8_qtensor(const Tensor& x, const Axes& axis = {}, const BlockLengths& blocks = {});

/// INT4, of the flattened x in blocks: s = 7 * (1 / amax), two roundings, [blocks, 1]; code = clamp(rne(x *
/// s), -8, 7) + 8, 0 for NaN, two a byte, the earlier one in the HIGH nibble: u8 [.., columns / 2]. y = (code
/// - 8) / s. A zero block has s = Inf, codes 0 and y = -0. (The reference cannot dequantize odd blocks.)
///
/// It refuses an odd last axis, a block size outside 1 .. 2^24, and padding whose bytes cannot be spread
/// evenly over x's rows.
[[nodiscard]] QTensor int4_qtensor(const Tensor& x, std::int64_t block_size);

/// NVFP4, in f32: s2 = amax of x / 2688, or `scale2` (one element); along the last axis, padded, s =
/// e4m3(clamp(b, 2^-9, 448)), b = amax / (6 * s2), 1 where that is 0; t = x / (s * s2); codes f4_e2m1 of t in
/// the padded shape, the sign only where t < 0, a NaN 6. y = code * (s * s2), +0 for a zero. Without scale2
/// zeros have NaN scales. It refuses an odd block size and a scale2 of more elements.
[[nodiscard]] QTensor nvfp4_qtensor(const Tensor& x, const Amax& scale2 = {}, std::int64_t block_size = 16);

/// MXFP4, in f32, the flattened x in blocks: e = ceil(max(log2(amax / 6), -127)), scale f8_e8m0 [blocks, 1]
/// of 2^e; codes f4_e2m1 of t = x / 2^e in the shape of x: ties go towards zero, and the sign is plus only
/// where t > 0, so a zero is -0. y = code * 2^e. log2 is rounded to f32 before the ceiling. Where amax is
/// infinite or NaN the scale is NaN. It refuses a block size that does not divide the number of elements, and
/// an odd last axis.
[[nodiscard]] QTensor mxfp4_qtensor(const Tensor& x, std::int64_t block_size = 32);
/// MXFP8, in f32, blocks of 32 along the last axis: e = clamp(ceil(log2(amax / 448)), -127, 127), -127 for
/// amax 0 or NaN; codes f8_e4m3 of clamp(x * 2^-e, -448, 448) in the shape of x, scale f8_e8m0. y = code *
/// 2^e.
[[nodiscard]] QTensor mxfp8_qtensor(const Tensor& x);

/// NF4 with scales of scales, of the flattened x in blocks: s = amax; the index of the entry nearest to x / s
/// in a table of bf16 numbers, the first of equals (0 for NaN), two a byte, the earlier one in the HIGH
/// nibble: u8 [padded / 2].
///
/// The scales, padded to whole blocks of scale_block_size, are quantized again: z = their mean, d = 127 * (1
/// / amax of s - z), scale_codes = clamp(rne((s - z) * d), -127, 127). y = table[index] * (scale_codes / d +
/// z). The mean is summed in double: the reference's order is not specified. (The reference cannot dequantize
/// more than one block of scales.) It refuses sizes outside 1 .. 2^24, and an odd number of elements after
/// padding.
[[nodiscard]] QTensor nf4_qtensor(const Tensor& x, std::int64_t block_size, std::int64_t scale_block_size);

}  // namespace fq::modelopt
