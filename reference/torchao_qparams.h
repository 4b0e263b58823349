#pragma once

/// Scales and zero points with the bits of torchao on a CPU.
///
/// Arithmetic is in the dtype of the values, f32, f16 or bf16, each operation rounded to it. `eps`, the least
/// scale, defaults to the smallest normal number of that type, `scale_dtype` to that type. A zero point is
/// found from the scale before it is cast; of an integer type it is truncated and wraps. NaN spreads to scale
/// and zero point; as an integer it is the lowest one of 32 or 64 bits, 0 of fewer. Where eps is 0 in that
/// type (1e-12 in f16), a range of zeros has scale 0, symmetric -0, of the loop of PyTorch that is not
/// vectorised, and 0 / 0 as asymmetric zero point. Errors: ArgumentError, for a block of another rank or one
/// that does not divide, codes out of the range of their type, an empty input.

#include "fakequant/core/tensor.h"
#include "fakequant/reference/torchao.h"

namespace fq::torchao {

struct QParams {
  Tensor scale, zero_point;
};

struct QParamsOptions {
  CodeRange range = {};
  std::optional<double> eps = {};
  std::optional<DType> scale_dtype = {};
  std::optional<DType> zero_point_dtype = {};  ///< by default i32; tinygemm: the type of x
  bool keepdim = false;                        ///< as many axes as x; only choose_qparams_affine heeds it
};

/// With lo = min(x, 0) and hi = max(x, 0) of each block:
///
///  * symmetric: s = max(-lo, hi) / ((quant_max - quant_min) / 2), z = trunc((quant_max + quant_min + 1) /
///  2);
///  * symmetric_no_clipping_err: s = max(lo / quant_min, hi / quant_max), z as above; NaN and -Inf of the
///  first
///    lose;
///  * asymmetric: s = (hi - lo) / (quant_max - quant_min), z = clamp(quant_min - rne(lo / s)).
///
/// s is then at least eps. Results have one axis for each axis that the block neither reduces nor covers, and
/// rank 0 when there is none; a block of all ones reduces everything.
[[nodiscard]] QParams choose_qparams_affine(const Tensor& x, MappingType mapping_type,
                                            const Shape& block_size, IntegerType target_dtype,
                                            const QParamsOptions& options = {});
/// The same from ranges that were observed: `min_val` and `max_val` of one shape and dtype, which the results
/// get.
[[nodiscard]] QParams choose_qparams_affine_with_min_max(const Tensor& min_val, const Tensor& max_val,
                                                         MappingType mapping_type, IntegerType target_dtype,
                                                         const QParamsOptions& options = {});
/// Asymmetric from the range as it is: s = (max - min) / (quant_max - quant_min), z = min + s * mid, a value.
[[nodiscard]] QParams choose_qparams_affine_tinygemm(const Tensor& x, MappingType mapping_type,
                                                     const Shape& block_size, IntegerType target_dtype,
                                                     const QParamsOptions& options = {});
/// Asymmetric from the range as it is: z = clamp(quant_min - rne(min / s)); zero need not have a code.
[[nodiscard]] QParams choose_qparams_affine_dont_preserve_zero(const Tensor& x, MappingType mapping_type,
                                                               const Shape& block_size,
                                                               IntegerType target_dtype,
                                                               const QParamsOptions& options = {});

}  // namespace fq::torchao
