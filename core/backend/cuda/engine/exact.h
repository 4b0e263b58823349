#pragma once

/// Exact integer sums of products of codes on the device, as in core/backend/cpu/engine/exact.h: int8
/// products, or bf16 products of code values in parts of up to 2^24, which give the same int32 sums.

#include <string>

#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/device.h"

namespace fq::cuda {

using cpu::ExactType;
using fq::detail::Codes;
using fq::detail::ConvShape;

/// The first of s8, bf16, f32 whose products of full-range codes are correct on this device, and the reason
/// why the types before it are not used. Tested once. A type other than s8 is logged as a warning.
struct ExactChoice {
  ExactType type;
  std::string reason;
};
[[nodiscard]] const ExactChoice& exact_choice(Device device);
/// Returns the chosen type, or the type that cpu::ForceExactType sets on this thread.
[[nodiscard]] ExactType best_exact_type(Device device);

/// Computes sums [m, n] = x [m, k] * w [n, k] transposed. |sums| must fit int32.
void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                std::int32_t* sums, Device device);
/// Computes sums [n, oh, ow, o] = conv(x [n, h, w, c], w [o, c/groups, kh, kw]).
void exact_conv(const ConvShape& shape, const Codes& x, const Codes& w, std::int32_t* sums, Device device);
/// Computes sums [n, h, w, c] = the transpose of that convolution in x, applied to codes [n, oh, ow, o].
void exact_conv_transpose(const ConvShape& shape, const Codes& x, const Codes& w, std::int32_t* sums,
                          Device device);

}  // namespace fq::cuda
