#pragma once

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

#include <optional>

#include "fakequant/core/descriptor_fields.h"
#include "fakequant/core/tensor.h"
#include "fakequant/core/variable.h"

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
/// Where s is 0, y is +0; a NaN or infinite s counts as 1.
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

/// Which of the reference's kernels is meant: they differ in their scales and in signs of zero.
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

}  // namespace fq::modelopt
