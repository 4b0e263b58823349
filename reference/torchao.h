#pragma once

/// torchao's granularities, types, scales and zero points, with its bits on a CPU.
///
///     using namespace torchao;
///     const Shape block = get_block_size(x.shape(), PerGroup{32});  // [1, 32] for x [N, K]
///     const auto [scale, zero_point] =
///         choose_qparams_affine(x, MappingType::asymmetric, block, IntegerType::named("int8"));
///
/// torchao_affine.h quantizes by them. Arithmetic of choose_qparams_.. is in the dtype of the values, f32,
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
#include <variant>

#include "fakequant/core/blocks/granularity.h"
#include "fakequant/core/tensor.h"

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
/// Which elements share a scale.
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

/// The codes in use; a bound that is not given is that of the type.
struct CodeRange {
  std::optional<std::int64_t> quant_min = {}, quant_max = {};
};

/// How a range of values becomes a range of codes.
enum class MappingType : unsigned char {
  symmetric,                  ///< the larger magnitude decides for both sides
  symmetric_no_clipping_err,  ///< the scale that clips neither side
  asymmetric,                 ///< the lowest value becomes the lowest code
};
/// Where the zero point lives.
enum class ZeroPointDomain : unsigned char {
  integer,   ///< a code: q = rne(x / s) + z
  floating,  ///< a value: the one of the middle code
  none,      ///< there is none: q = rne(x / s)
};
/// "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC". Throws ArgumentError for another name.
[[nodiscard]] MappingType mapping_type(std::string_view name);
/// "INT", "FLOAT", "NONE". Throws ArgumentError for another name.
[[nodiscard]] ZeroPointDomain zero_point_domain(std::string_view name);

/// What a range becomes: the step, and the code (or value) of zero, in one shape.
struct QParams {
  /// One element for each block.
  Tensor scale, zero_point;
};

/// What choose_qparams_.. are told besides: the defaults are torchao's.
struct QParamsOptions {
  /// The codes that values are mapped to.
  CodeRange range = {};
  /// The least scale.
  std::optional<double> eps = {};
  /// The types of the results; a zero point is i32 unless said, that of tinygemm has x's type.
  std::optional<DType> scale_dtype = {};
  std::optional<DType> zero_point_dtype = {};  ///< by default i32; tinygemm: the type of x
  /// Whether the results have as many axes as x; only choose_qparams_affine heeds it.
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
/// The same from ranges that were observed: `min_val` and `max_val` have one shape and dtype, which the
/// results get.
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
