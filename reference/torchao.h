#pragma once

/// torchao's granularities, types, scales and zero points, with its bits on a CPU.
///
///     using namespace torchao;
///     const Shape block = get_block_size(x.shape(), PerGroup{32});  // [1, 32] for x [N, K]
///     const auto [scale, zero_point] =
///         choose_qparams_affine(x, MappingType::asymmetric, block, IntegerType::named("int8"));
///
/// The affine functions quantize by them. Arithmetic of choose_qparams_.. is in the dtype of the values, f32,
/// f16 or bf16, each operation rounded to it. `eps`, the least scale, defaults to the smallest normal number
/// of that type, `scale_dtype` to that type. A zero point is found from the scale before it is cast; of an
/// integer type it is truncated and wraps. NaN spreads to scale and zero point; as an integer it is the
/// lowest one of 32 or 64 bits, 0 of fewer. Where eps is 0 in that type (1e-12 in f16), a range of zeros has
/// scale 0, symmetric -0, of the loop of PyTorch that is not vectorised, and 0 / 0 as asymmetric zero point.
///
/// Throws ArgumentError for a block of another rank or one that does not divide, codes out of the range of
/// their type, and an empty input.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"
#include "fakequant/core/variable.h"

namespace fq::torchao {

/// One scale for everything.
struct PerTensor {};
/// One scale for each index of the axis, negative from the back.
struct PerAxis {
  int axis;
};
/// Groups of `group_size` along the last axis.
struct PerGroup {
  std::int64_t group_size;
};
/// One scale for each row of the last axis.
struct PerRow {};
/// As PerRow: a token is a row of features.
struct PerToken {};
/// One scale for each block of these sizes, one size for each axis.
struct PerBlock {
  Shape block_size;
};
/// The blocks of elements that share a scale.
using Granularity = std::variant<PerTensor, PerAxis, PerGroup, PerRow, PerToken, PerBlock>;

/// How many elements along each axis share a scale. Throws ArgumentError for an axis that is not there, a
/// block of another rank, or one that does not divide the shape.
[[nodiscard]] Shape get_block_size(const Shape& input_shape, const Granularity& granularity);
/// How many scales there are along each axis. Throws ArgumentError, in the name of `function`, for a block of
/// another rank or one that does not divide the shape; one as long as its axis always does.
[[nodiscard]] Shape scale_shape(const Shape& input_shape, const Shape& block_size,
                                std::string_view function = "torchao.get_block_size");

/// torch's integer types: 1 to 8 bits, signed or not, and signed of 16 and 32.
struct IntegerType {
  int bits = 8;
  bool is_unsigned = false;

  /// "int8", "uint4", .. Throws ArgumentError for a type torchao does not know.
  [[nodiscard]] static IntegerType named(std::string_view name);
  /// The least code of the type.
  [[nodiscard]] std::int64_t lower() const noexcept {
    return is_unsigned ? 0 : -(std::int64_t{1} << (bits - 1));
  }
  /// The largest code of the type.
  [[nodiscard]] std::int64_t upper() const noexcept {
    return (std::int64_t{1} << (bits - (is_unsigned ? 0 : 1))) - 1;
  }
  /// "int8", "uint4", ..: what `named` takes.
  [[nodiscard]] std::string name() const;
  friend bool operator==(const IntegerType&, const IntegerType&) = default;
};

/// The codes in use; a missing bound defaults to the type's.
struct CodeRange {
  std::optional<std::int64_t> quant_min = {}, quant_max = {};
};

/// How a range of values becomes a range of codes.
enum class MappingType : unsigned char {
  symmetric,                  ///< the larger magnitude decides for both sides
  symmetric_no_clipping_err,  ///< the scale that clips neither side
  asymmetric,                 ///< the lowest value becomes the lowest code
};
/// Domain of the zero point.
enum class ZeroPointDomain : unsigned char {
  integer,   ///< a code: q = rne(x / s) + z
  floating,  ///< a value: the one of the middle code
  none,      ///< there is none: q = rne(x / s)
};
/// "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC". Throws ArgumentError for another name.
[[nodiscard]] MappingType mapping_type(std::string_view name);
/// "INT", "FLOAT", "NONE". Throws ArgumentError for another name.
[[nodiscard]] ZeroPointDomain zero_point_domain(std::string_view name);

/// Parameters of a range: the step, and the code (or value) of zero, in one shape.
struct QParams {
  /// One element for each block.
  Tensor scale, zero_point;
};

/// Options of choose_qparams_..; the defaults are torchao's.
struct QParamsOptions {
  /// The codes that values are mapped to.
  CodeRange range = {};
  /// The least scale.
  std::optional<double> eps = {};
  /// Types of the results. A zero point is i32 by default, for tinygemm x's type.
  std::optional<DType> scale_dtype = {};
  std::optional<DType> zero_point_dtype = {};  ///< by default i32; tinygemm: the type of x
  /// Whether the results have the rank of x; only choose_qparams_affine uses it.
  bool keepdim = false;
};

/// Scale and zero point of each block, with lo = min(x, 0) and hi = max(x, 0) over it:
///
/// - symmetric: s = max(-lo, hi) / ((quant_max - quant_min) / 2), z = trunc((quant_max + quant_min + 1) / 2);
/// - symmetric_no_clipping_err: s = max(lo / quant_min, hi / quant_max), z as above; NaN and -Inf of the
///   first lose;
/// - asymmetric: s = (hi - lo) / (quant_max - quant_min), z = clamp(quant_min - rne(lo / s)).
///
/// s is then at least eps. Results have one axis for each axis that the block neither reduces nor covers, and
/// rank 0 when there is none; a block of all ones reduces everything.
[[nodiscard]] QParams choose_qparams_affine(const Tensor& x, MappingType mapping_type,
                                            const Shape& block_size, IntegerType target_dtype,
                                            const QParamsOptions& options = {});
/// Parameters from observed ranges: `min_val` and `max_val` have one shape and dtype, which the
/// results get.
[[nodiscard]] QParams choose_qparams_affine_with_min_max(const Tensor& min_val, const Tensor& max_val,
                                                         MappingType mapping_type, IntegerType target_dtype,
                                                         const QParamsOptions& options = {});
/// Asymmetric, from the unchanged range: s = (max - min) / (quant_max - quant_min), z = min + s * mid, a
/// value.
[[nodiscard]] QParams choose_qparams_affine_tinygemm(const Tensor& x, MappingType mapping_type,
                                                     const Shape& block_size, IntegerType target_dtype,
                                                     const QParamsOptions& options = {});
/// Asymmetric, from the unchanged range: z = clamp(quant_min - rne(min / s)); zero need not have a code.
[[nodiscard]] QParams choose_qparams_affine_dont_preserve_zero(const Tensor& x, MappingType mapping_type,
                                                               const Shape& block_size,
                                                               IntegerType target_dtype,
                                                               const QParamsOptions& options = {});

/// Affine quantization by blocks with the bits of torchao on a CPU.
///
///     using namespace torchao;
///     const auto type = IntegerType::named("uint4");
///     const Shape block = get_block_size(x.shape(), PerGroup{32});
///     const auto [s, z] = choose_qparams_affine(x, MappingType::asymmetric, block, type);
///     const Tensor codes = quantize_affine(x, block, s, z, type);            // u8, 0 .. 15
///     const Tensor y = dequantize_affine(codes, block, s, z, type);
///
/// `block_size` says how many elements along each axis share a scale (`get_block_size` makes it from a
/// granularity): a divisor of the axis, 1 or the whole of it. `scale` is f32, f16 or bf16, of one element for
/// each block, in any shape; `zero_point` likewise, undefined where there is none. x is f32, f16 or bf16, any
/// layout.
///
/// Operations run in the promoted type of x, the scale and a floating zero point: where that has 16 bits,
/// each is rounded to it, five and more an element, in plain loops. A NaN becomes code 0 (and stays NaN in
/// fake quantization), infinities saturate. On `meta` only shapes flow. Throws ArgumentError for a block of
/// another rank or one that does not divide, a scale or zero point of another size or type, codes out of the
/// range of their type, and a zero point that is missing, or given where there is none.

/// Codes, with r = fl(1 / scale) and mid = (quant_max + quant_min + 1) / 2:
///
/// - integer: clamp(rne(x * r) + zero_point)
/// - floating: clamp(rne((x - (zero_point - scale * mid)) / scale))
/// - none: clamp(rne(x * r))
///
/// They are i8, u8 (also for uint1 to uint7), i16 or i32. int1 to int7 are refused: quantize to int8 with a
/// range.
[[nodiscard]] Tensor quantize_affine(const Tensor& x, const Shape& block_size, const Tensor& scale,
                                     const Tensor& zero_point, IntegerType output_dtype,
                                     const CodeRange& range = {},
                                     ZeroPointDomain domain = ZeroPointDomain::integer);

/// Values of codes in `output_dtype`, f32, f16 or bf16, each step rounded to it:
///
/// - integer: (q - zero_point) * scale, without a zero point q * scale
/// - floating: (q - mid) * scale + zero_point
/// - none: q * scale
///
/// `codes` have the type that `quantize_affine` returns for `input_dtype`; uint1 to uint7 may have any type.
[[nodiscard]] Tensor dequantize_affine(const Tensor& codes, const Shape& block_size, const Tensor& scale,
                                       const Tensor& zero_point, IntegerType input_dtype,
                                       const CodeRange& range = {},
                                       ZeroPointDomain domain = ZeroPointDomain::integer,
                                       DType output_dtype = DType::f32);

/// The two in sequence, in x's dtype, without integers between: codes may be of any IntegerType.
[[nodiscard]] Tensor fake_quantize_affine(const Tensor& x, const Shape& block_size, const Tensor& scale,
                                          const Tensor& zero_point, IntegerType quant_dtype,
                                          const CodeRange& range = {},
                                          ZeroPointDomain domain = ZeroPointDomain::integer);
/// dx = (dy * scale) * r (floating: / scale) where the position before the clamp lies strictly between
/// quant_min and quant_max, each product rounded; 0 elsewhere. A scale that requires a gradient gets the
/// gradient of range learning: the sum over its block through both its uses, exact to double precision.
[[nodiscard]] Variable fake_quantize_affine(const Variable& x, const Shape& block_size, const Variable& scale,
                                            const Tensor& zero_point, IntegerType quant_dtype,
                                            const CodeRange& range = {},
                                            ZeroPointDomain domain = ZeroPointDomain::integer);

/// The values, and a mask (u1) of the codes that are within the range after the clamp: all except NaN.
[[nodiscard]] std::pair<Tensor, Tensor> fake_quantize_affine_cachemask(
    const Tensor& x, const Shape& block_size, const Tensor& scale, const Tensor& zero_point,
    IntegerType quant_dtype, const CodeRange& range = {}, ZeroPointDomain domain = ZeroPointDomain::integer);
[[nodiscard]] std::pair<Variable, Tensor> fake_quantize_affine_cachemask(
    const Variable& x, const Shape& block_size, const Variable& scale, const Tensor& zero_point,
    IntegerType quant_dtype, const CodeRange& range = {}, ZeroPointDomain domain = ZeroPointDomain::integer);

/// Quantization to 8-bit floats, and casts to floats of any few bits, with the bits of torchao on a CPU.
///
///     const Tensor scale = torchao::choose_scale_float8(x, {1, 32});        // x [N, 32]: a scale a row
///     const Tensor codes = torchao::quantize_affine_float8(x, scale);       // f8_e4m3
///     const auto mx = torchao::to_mx(x, FloatFormat{4, 3});                 // codes and E8M0 scales
///
/// Every refusal is an ArgumentError. On `meta` only shapes flow. Only
/// `quantize_affine_float8` of a Variable passes a gradient.

/// Options of choose_scale_float8.
struct Float8ScaleOptions {
  DType scale_dtype = DType::f32;  ///< f8_e8m0: powers of two, 2^rne(log2(s)); the result is f32 still
  std::optional<double> hp_value_lb = {};  ///< the least amax
  std::optional<double> hp_value_ub = {};  ///< the largest amax
};
/// s = amax / max of each block, max = 448 or 57344, in x's dtype (f32, f16 or bf16), then as f32, with one
/// for each block along each axis. It refuses codes but f8_e4m3 and f8_e5m2, a block that does not fit, and
/// one of all ones (which torchao reduces to one result) unless x has one element.
[[nodiscard]] Tensor choose_scale_float8(const Tensor& x, const Shape& block_size,
                                         DType float8_dtype = DType::f8_e4m3,
                                         const Float8ScaleOptions& options = {});

/// Codes of clamp(x / scale, -max, max), half to even; arithmetic is f32. `scale` (f32, f16 or bf16) has one
/// element, or x's rank and sizes that divide x's: blocks of the quotients. It refuses other scales.
[[nodiscard]] Tensor quantize_affine_float8(const Tensor& x, const Tensor& scale,
                                            DType float8_dtype = DType::f8_e4m3);
/// Records a straight-through gradient for x: dy / scale where -max <= x / scale <= max, in f32, then
/// in x's type. `scale` gets none.
[[nodiscard]] Variable quantize_affine_float8(const Variable& x, const Tensor& scale,
                                              DType float8_dtype = DType::f8_e4m3);
/// code * scale in f32, then in `dtype`.
[[nodiscard]] Tensor dequantize_affine_float8(const Tensor& codes, const Tensor& scale,
                                              DType dtype = DType::f32);

/// Codes, one a byte (u8) in the low bits, of floats with a sign, `ebits` and `mbits` bits, no infinities and
/// no NaN: half to even, saturating, infinity too; zeros keep their sign. x is f32. It refuses ebits or mbits
/// below 1 and a sum above 7. The code of NaN is not specified.
[[nodiscard]] Tensor cast_floatx(const Tensor& x, int ebits, int mbits);
/// The values of such codes, in f32.
[[nodiscard]] Tensor decode_floatx(const Tensor& codes, int ebits, int mbits);

/// How amax of a block becomes its power of two, 2^emax being the largest power of the element type.
enum class ScalingMode : unsigned char {
  floor,  ///< the exponent of amax, less emax
  ceil,   ///< one more where amax is no power of two
  even,   ///< as floor, amax first rounded to the mantissa of the element type
  rceil,  ///< ceil(log2(amax / max)): the largest element does not saturate
};
/// "FLOOR", "CEIL", "EVEN", "RCEIL". Throws ArgumentError for another name.
[[nodiscard]] ScalingMode scaling_mode(std::string_view name);

/// Codes and their scales: one scale per block, in the shape of the codes except for the last axis.
struct ScaledCodes {
  Tensor scale, codes;
};

/// OCP MX: `x` is f32 or bf16; elements E4M3, E5M2, E3M2, E2M3 or E2M1 give codes f8_e4m3, f8_e5m2, u8 (one a
/// byte, in the low bits) or f4_e2m1 (packed, low nibble first), with scales f8_e8m0.
///
/// x is divided by the scale (2^-127 counts as 2^-126; rceil: as 1) and rounded half to even, saturating. A
/// block with a NaN has scale 255, infinity saturates the scale. It refuses a last axis that `block_size`
/// does not divide, and an odd one for E2M1.
[[nodiscard]] ScaledCodes to_mx(const Tensor& x, FloatFormat element, std::int64_t block_size = 32,
                                ScalingMode mode = ScalingMode::floor);
/// The values of such codes: the element and 2^(scale - 127), both in `dtype` (f32, f16 or bf16), multiplied
/// in it.
[[nodiscard]] Tensor to_dtype(const ScaledCodes& mx, FloatFormat element, std::int64_t block_size = 32,
                              DType dtype = DType::f32);

/// NVFP4: blocks of 16, E2M1 codes (f4_e2m1), scales f8_e4m3 of shape [x.dim(0), the rest / 16]; arithmetic
/// is f32.
///
/// scale = e4m3(clamp(fl(amax / 6) / p, 2^-6, 448)), codes = e2m1(clamp(x * r, -6, 6)), r = fl(fl(1 / p) /
/// scale); without p, `per_tensor_scale`, fl(1 / scale). p (f32) has one element, or one for each index of
/// axis 0 in the shape [x.dim(0), 1] or [x.dim(0), 1, 1]. Zeros keep their sign. `x` is f32 or bf16 of 2 axes
/// or more; a last axis that 16 does not divide is refused.
[[nodiscard]] ScaledCodes nvfp4_quantize(const Tensor& x, const Tensor& per_tensor_scale = {});

}  // namespace fq::torchao
