#pragma once

/// Exact integer sums of products of codes, whatever the processor offers.
///
/// Three engines give the same int32 sums: s8 where it is right, bf16 or f32 on code values elsewhere. Floats
/// hold sums up to 2^24 exactly, so those engines split the sum into parts of at most 2^24 and add the parts
/// in int32; so does s8 with signed x, whose sums oneDNN corrects in f32.

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

/// Whether products of full-range codes come out right on this processor, found out once by multiplying some
/// (without VNNI oneDNN's s8 products saturate: nearly every sum is wrong). f32 always does.
[[nodiscard]] bool exact_type_works(ExactType type);
/// The first of s8, bf16, f32 that works, or the forced one.
[[nodiscard]] ExactType best_exact_type();

/// For tests: products asked for on this thread, of any device, use `type` while it lives.
class ForceExactType : public ScopedValue<std::optional<ExactType>> {
 public:
  explicit ForceExactType(ExactType type);
};
[[nodiscard]] std::optional<ExactType> forced_exact_type() noexcept;

using detail::Codes;

/// sums [m, n] = x [m, k] * w [n, k] transposed. |sums| must fit int32.
void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                std::int32_t* sums);
/// The same for `batch` pairs of matrices of codes of a byte that lie behind each other.
void exact_batch(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x,
                 const Codes& w, std::int32_t* sums);
/// sums = conv(x, w), arrays as in `conv_forward`.
void exact_conv(const ConvShape& shape, const Codes& x, const Codes& w, std::int32_t* sums);
/// sums [n, c, h, w] = the transpose of that convolution in x, applied to codes [n, o, oh, ow]; bf16 or f32
/// engine.
void exact_conv_transpose(const ConvShape& shape, const Codes& x, const Codes& w, std::int32_t* sums);

// Sums of code products in parts that floats hold exactly.

/// Whole numbers up to this are floats.
inline constexpr std::int64_t exact_limit = std::int64_t{1} << 24;

/// Channels [c0, c1) of each group, and of their kernels only the taps [p0, p1).
struct Part {
  std::int64_t c0, c1, p0, p1;
};
/// Parts of `channels` * `taps` products of at most `largest` each, whose sums stay within exact_limit.
[[nodiscard]] std::vector<Part> exact_parts(std::int64_t channels, std::int64_t taps, std::int64_t largest);

/// Rows of `groups` groups of `width` codes each; of every group the columns [begin, end).
struct CodeColumns {
  std::int64_t rows, groups, width, begin, end;
};
/// Those codes densely: as f32 or bf16 values, or in their own type.
[[nodiscard]] Tensor code_columns(const Codes& codes, const CodeColumns& columns, DType dtype);
/// Sets all but the taps [p0, p1) of each kernel of `taps` values to 0.
void keep_taps(Tensor& kernels, std::int64_t taps, const Part& part);
/// sums = parts, or sums += parts, the parts being whole numbers, f32 or i32.
void add_part(const Tensor& part, bool first, std::int32_t* sums);

}  // namespace fq::cpu
