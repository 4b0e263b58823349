#pragma once

/// Fake quantization with the bits of NVIDIA ModelOpt's `tensor_quant.py`, as it computes on a CPU; and its
/// configurations of quantizers.
///
///     const Tensor y = modelopt::fake_tensor_quant(x, 2.5);                      // 8 bits, per tensor
///     const Tensor z = modelopt::fake_tensor_quant(x, amax, {}, 4);              // 4 bits, amax [C, 1, 1]
///     const Variable w = modelopt::scaled_e4m3(Variable(x, true), 448.0);        // passes gradients
///
/// Common rules: `x` is f32, f16, bf16 or f64, any layout; arithmetic is f32, except int_cast_ste, which uses
/// x's type; the output has x's dtype (with a `bias`, the promoted type of the two). x, `amax` and `bias`
/// broadcast together by NumPy's rule: where those have more axes or elements, x is repeated, and its
/// gradient summed in double. On `meta` only shapes flow.
///
/// The overloads for a Variable record the straight-through gradient: dy where |x - bias| <= amax, +0
/// elsewhere, dy everywhere with `pass_through_bwd`; amax and bias get none. An amax of rank 0 is first
/// rounded to a 16-bit type of x. Every refusal is an ArgumentError. rne is rounding half to even.

#include <concepts>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "fakequant/core/descriptor.h"
#include "fakequant/core/tensor.h"
#include "fakequant/core/variable.h"

namespace fq::detail {
[[nodiscard]] Tensor scaled_e4m3_with_range(const Tensor& x, const Tensor& amax, const Tensor& bias,
                                            int exponent, int mantissa, bool pass_through_bwd);
[[nodiscard]] Variable scaled_e4m3_with_range(const Variable& x, const Tensor& amax, const Tensor& bias,
                                              int exponent, int mantissa, bool pass_through_bwd);
}  // namespace fq::detail

namespace fq::modelopt {

/// Integers: y = clamp(rne(x * s), lo, hi) / s with s = hi / amax, hi = 2^(num_bits-1+unsigned) - 1 and lo =
/// 0, -hi (narrow) or -hi-1. A Grid differs: it divides by a scale, this multiplies
/// by its inverse.
///
/// Where amax <= 2^-24, y is 0, or NaN if x is infinite. Elsewhere Inf saturates. NaN stays NaN, -0 stays
/// -0. An infinite amax makes NaN; with a NaN anywhere in amax small values of it are no longer
/// special. A signed code of one bit is 0 / 0: NaN. It refuses a negative amax, a negative x when unsigned
/// (unless x has a NaN), and num_bits outside 1 .. 16.
[[nodiscard]] Tensor fake_tensor_quant(const Tensor& x, const Amax& amax, const Tensor& bias = {},
                                       int num_bits = 8, bool is_unsigned = false, bool narrow_range = true,
                                       bool pass_through_bwd = false);
[[nodiscard]] Variable fake_tensor_quant(const Variable& x, const Amax& amax, const Tensor& bias = {},
                                         int num_bits = 8, bool is_unsigned = false, bool narrow_range = true,
                                         bool pass_through_bwd = false);
/// With a range in a tensor: on the GPU of x it stays there and the host does not wait; a negative number
/// in it raises NumericError when a value is next read back. Elsewhere as an Amax.
[[nodiscard]] Tensor fake_tensor_quant(const Tensor& x, const Tensor& amax, const Tensor& bias = {},
                                       int num_bits = 8, bool is_unsigned = false, bool narrow_range = true,
                                       bool pass_through_bwd = false);
[[nodiscard]] Variable fake_tensor_quant(const Variable& x, const Tensor& amax, const Tensor& bias = {},
                                         int num_bits = 8, bool is_unsigned = false, bool narrow_range = true,
                                         bool pass_through_bwd = false);

/// FP8: y = e4m3(clamp(x * s, -448, 448)) * (1 / s), s = 448 * (1 / a), a = amax, or 1 where amax <= 2^-24;
/// without amax y = e4m3(x) and the gradient passes everywhere. Codes round half to even and saturate; NaN
/// and -0 stay. It refuses (E,M) != (4,3).
[[nodiscard]] Tensor scaled_e4m3(const Tensor& x, const Amax& amax = {}, const Tensor& bias = {},
                                 int exponent = 4, int mantissa = 3, bool pass_through_bwd = false);
[[nodiscard]] Variable scaled_e4m3(const Variable& x, const Amax& amax = {}, const Tensor& bias = {},
                                   int exponent = 4, int mantissa = 3, bool pass_through_bwd = false);
/// With a range in a tensor: on the GPU of x it stays there and the host does not wait. Elsewhere as an
/// Amax. `{}` is no range.
template <class Input, std::same_as<Tensor> Range>
[[nodiscard]] auto scaled_e4m3(const Input& x, const Range& amax, const Tensor& bias = {}, int exponent = 4,
                               int mantissa = 3, bool pass_through_bwd = false) {
  return detail::scaled_e4m3_with_range(x, amax, bias, exponent, mantissa, pass_through_bwd);
}

/// Integers without a scale: y = clamp(rne(x), lo, hi); the gradient passes where lo <= x <= hi, lo and hi
/// rounded to x's type. NaN stays NaN. It refuses num_bits outside 1 .. 16, and a hi that f16 does not reach
/// (16 bits unsigned).
[[nodiscard]] Tensor int_cast_ste(const Tensor& x, int num_bits, bool is_unsigned = false,
                                  bool narrow_range = true);
[[nodiscard]] Variable int_cast_ste(const Variable& x, int num_bits, bool is_unsigned = false,
                                    bool narrow_range = true);

/// The descriptor of the fields of a QuantizerAttributeConfig. In addition to QuantDescriptor's checks
/// it rejects learn_amax, and a config with only `{"enable": true}`. `enable` and `pass_through_bwd`
/// are a quantizer's, not a descriptor's: they are checked and left out. Throws ArgumentError naming the
/// field.
[[nodiscard]] QuantDescriptor quantizer_attribute_config(const nlohmann::json& fields);

/// ModelOpt's names of fields as keys of QuantDescriptor::dict(): `type` "dynamic" is `dynamic`, `calibrator`
/// is `calib_method`, `constant_amax` is `amax`, formats may be spelled "e4m3".
///
/// Fields that only its exporter reads (`trt_high_precision_dtype`, `effective_bits`) are dropped, and so are
/// the defaults of those we have no counterpart for; their other values are refused (`bias`, `rotate`,
/// `backend`, ..). Keys that ModelOpt does not know stay. Throws ArgumentError naming the field.
[[nodiscard]] nlohmann::json descriptor_fields(const nlohmann::json& fields);

}  // namespace fq::modelopt

namespace fq {
using modelopt::fake_tensor_quant;
using modelopt::scaled_e4m3;
}  // namespace fq

/// Fake quantization by blocks, with the bits of NVIDIA ModelOpt's GPU kernels under IEEE arithmetic: FP4
/// with given block ranges (`fp4_kernel.py`), and every format with scales of scales or powers of two, found
/// from each input (`tensor_quant_mx.cu`, `fp4_kernel_hopper.py`).
///
///     const Tensor mxfp8 = modelopt::dynamic_block_quantize(x, {4, 3}, {8, 0}, 32);
///     const Tensor nvfp4 = modelopt::dynamic_block_quantize(x, {2, 1}, {4, 3}, 16, 6.0);  // amax of x is 6
///
/// Common to all: `x` is f32, f16 or bf16, any layout; arithmetic is f32, the output has x's shape and,
/// unless asked otherwise, its type. On `meta` only shapes flow. Ranges are constants and get no gradient.
/// Every refusal is an ArgumentError.

namespace fq::modelopt {

/// Scales of FP4 blocks, f32, in the shape of `amax`: s = amax / 6; with `quantize_block_scales` rounded by
/// scaled_e4m3(s, G), G = global_amax * fl(448 / fp8_max_for_normalization) / 6. `global_amax` has one
/// element; without it, it is the largest of |amax|. It refuses an fp8_max_for_normalization that is not
/// positive.
[[nodiscard]] Tensor compute_fp4_scales(const Amax& amax, const Amax& global_amax = {},
                                        bool quantize_block_scales = true,
                                        double fp8_max_for_normalization = 448);

/// FP4 with given ranges of blocks: the row-major elements of x, in amax.numel() blocks of equal length, with
/// s of compute_fp4_scales: y = e2m1(|x| / s) * s, negative unless x >= 0 (so -0 becomes +0, a NaN -6*s).
/// Where s is 0, y is +0; a NaN or infinite s is replaced by 1.
///
/// The gradient passes where |x| <= amax of the block (an amax of rank 0 is first rounded to a 16-bit type of
/// x), everywhere with `pass_through_bwd`. `out_dtype` is f32, f16 or bf16. It refuses a count of amax that
/// does not divide x's.
[[nodiscard]] Tensor static_blockwise_fp4_fake_quant(const Tensor& x, const Amax& amax,
                                                     const Amax& global_amax = {},
                                                     bool quantize_block_scales = true,
                                                     double fp8_max_for_normalization = 448,
                                                     std::optional<DType> out_dtype = {},
                                                     bool pass_through_bwd = false);
[[nodiscard]] Variable static_blockwise_fp4_fake_quant(const Variable& x, const Amax& amax,
                                                       const Amax& global_amax = {},
                                                       bool quantize_block_scales = true,
                                                       double fp8_max_for_normalization = 448,
                                                       std::optional<DType> out_dtype = {},
                                                       bool pass_through_bwd = false);

/// FP4 without a scale: y = e2m1(|x|), negative unless x >= 0; the gradient passes where |x| <= 6.
[[nodiscard]] Tensor fp4_cast_ste(const Tensor& x, std::optional<DType> out_dtype = {});
[[nodiscard]] Variable fp4_cast_ste(const Variable& x, std::optional<DType> out_dtype = {});

/// The reference's kernel. The kernels differ in their scales and in signs of zero.
enum class BlockKernel : unsigned char { cuda_ext, triton };

/// Blocks of `block_size` along the last axis, the tail padded with zeros, whose scales are found from x; am
/// is the largest |x| of a block, NaN left out.
///
/// cuda_ext: num_bits {4,3}, {5,2}, {3,2}, {2,3}, {2,1}, {1,2}, {0,3}, {3,0} or 8; scale_bits {8,0} or {4,3};
/// block_size 8, 16 or 32. `global_amax`, for {4,3} only, has one element, or one for each row of a 2-D x. y
/// = sign(x) * (round(|x| * scale) * unscale), scale = unscale = 1 where am or global is 0, infinite or NaN
/// (|x| is capped at the largest float). fmax is the largest number of the format:
///
/// - {8,0}: unscale = 2^e, scale = 2^-e, e = the exponent of r = fl(am / fmax), one more if r has mantissa
///   bits (but not from 2^127 upwards, nor up to 2^-127);
/// - {4,3} with global: T = 448.0 * fl(fmax / global) in double, u = e4m3(fl(fl(am / fmax) * T)) / T in
///   double, scale = fl(1 / u), unscale = fl(u);
/// - {4,3} without: u = e4m3(fl(1 / (double)fl(fmax / am))), scale = fl(1 / u), unscale = u.
///
/// round() is half to even, saturating; {3,0} half away from zero; 8 bits to +-127. Zeros come out as +0. NaN
/// stays NaN in {4,3} and {5,2}, is the largest number in smaller floats and 0 in integers.
///
/// triton: num_bits {2,1}, scale_bits {4,3}, block_size 16, global_amax of one element. g = fl(global /
/// 2688), 1e-12 unless positive; s = e4m3(min(am / (6 * g), 448)) * g, but 1 below 1e-5; y = e2m1(|x| / s) *
/// s, negative unless x >= 0.
///
/// The gradient passes everywhere unless `pass_through_bwd` is off and a global_amax is given: then where |x|
/// <= global_amax.
[[nodiscard]] Tensor dynamic_block_quantize(const Tensor& x, const NumBits& num_bits,
                                            const NumBits& scale_bits, std::int64_t block_size,
                                            const Amax& global_amax = {},
                                            BlockKernel kernel = BlockKernel::cuda_ext,
                                            bool pass_through_bwd = true);
[[nodiscard]] Variable dynamic_block_quantize(const Variable& x, const NumBits& num_bits,
                                              const NumBits& scale_bits, std::int64_t block_size,
                                              const Amax& global_amax = {},
                                              BlockKernel kernel = BlockKernel::cuda_ext,
                                              bool pass_through_bwd = true);

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

/// The format of the codes, each made by the function of its name.
enum class PackedFormat : unsigned char { int8, fp8, int4, nvfp4, mxfp4, mxfp8, nf4 };

/// Result of the functions below: codes, scales, and properties of the input.
struct QTensor {
  PackedFormat format;
  Shape shape;  ///< of x
  DType dtype;  ///< of x
  /// The codes, packed as the function of the format says.
  Tensor codes;
  /// Factor of the codes (INT4: divisor), one per block or axis.
  Tensor scale;
  Tensor scale2 = {};        ///< nvfp4: f32, rank 0
  Tensor scale_codes = {};   ///< nf4: i8 [blocks of scales, scale_block_size]
  Tensor double_scale = {};  ///< nf4: factor of each block of scales
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
/// its zeros. y = codes * s. Scales and rejected input as in int8_qtensor.
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
