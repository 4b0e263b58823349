#pragma once

/// Exact integer sums of products of codes on any processor.
///
/// Three engines give the same int32 sums: s8 if it is correct, else bf16 or f32 on code values. Floats
/// represent sums up to 2^24 exactly. The float engines therefore split the sum into parts of at most 2^24
/// and add the parts in int32. So does s8 with signed x, whose sums oneDNN corrects in f32.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/context.h"
#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

enum class ExactType : unsigned char { s8, bf16, f32 };
[[nodiscard]] std::string_view name(ExactType type) noexcept;

/// Returns whether products of full-range codes are correct on this processor. Tested once by multiplying
/// some codes (without VNNI, oneDNN's s8 products saturate: nearly every sum is wrong). f32 always works.
[[nodiscard]] bool exact_type_works(ExactType type);
/// Returns the first of s8, bf16, f32 that works, or the forced type.
[[nodiscard]] ExactType best_exact_type();

/// For tests: products on this thread, on any device, use `type` during the lifetime of this object.
class ForceExactType : public ScopedValue<std::optional<ExactType>> {
 public:
  explicit ForceExactType(ExactType type);
};
[[nodiscard]] std::optional<ExactType> forced_exact_type() noexcept;

using detail::Codes;

/// Computes sums [m, n] = x [m, k] * w [n, k] transposed. |sums| must fit int32.
void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                std::int32_t* sums);
/// Computes the sums of `batch` consecutive pairs of matrices of one-byte codes.
void exact_batch(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x,
                 const Codes& w, std::int32_t* sums);
/// Computes sums = conv(x, w), with arrays as in `conv_forward`.
void exact_conv(const ConvShape& shape, const Codes& x, const Codes& w, std::int32_t* sums);
/// Computes sums [n, c, h, w] = the transpose of that convolution in x, applied to codes [n, o, oh, ow]. Uses
/// the bf16 or f32 engine.
void exact_conv_transpose(const ConvShape& shape, const Codes& x, const Codes& w, std::int32_t* sums);

// Sums of code products in parts that floats hold exactly.

/// f32 represents all whole numbers up to this magnitude.
inline constexpr std::int64_t exact_limit = std::int64_t{1} << 24;

/// Part of a sum: channels [c0, c1) of each group, and only the taps [p0, p1) of their kernels.
struct Part {
  std::int64_t c0, c1, p0, p1;
};
/// Returns parts of `channels` * `taps` products of at most `largest` each, with sums up to exact_limit.
[[nodiscard]] std::vector<Part> exact_parts(std::int64_t channels, std::int64_t taps, std::int64_t largest);

/// Columns [begin, end) of every group, in rows of `groups` groups of `width` codes.
struct CodeColumns {
  std::int64_t rows, groups, width, begin, end;
};
/// Returns these codes contiguously, as f32 or bf16 values or in their own type.
[[nodiscard]] Tensor code_columns(const Codes& codes, const CodeColumns& columns, DType dtype);
/// Sets all taps of each kernel of `taps` values to 0, except [p0, p1).
void keep_taps(Tensor& kernels, std::int64_t taps, const Part& part);
/// Computes sums = part or sums += part, for whole numbers in f32 or i32.
void add_part(const Tensor& part, bool first, std::int32_t* sums);

}  // namespace fq::cpu
