#pragma once

/// Exact integer sums of products of codes, whatever the processor offers.
///
/// Three engines give the same int32 sums: s8 where it is right, bf16 or f32 on code values elsewhere. Floats
/// hold sums up to 2^24 exactly, so those engines split the sum into parts of at most 2^24 and add the parts
/// in int32; so does s8 with signed x, whose sums oneDNN corrects in f32.

#include <cstdint>
#include <optional>
#include <string_view>

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/context.h"
#include "fakequant/core/format.h"

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

}  // namespace fq::cpu
