#pragma once

/// Exact int32 sums of products of 8-bit codes without oneDNN, for processors whose 8-bit products saturate,
/// and for products of a few rows, where a call of oneDNN costs more than the product.
///
/// `int16_products` widens the codes to int16. One instruction (PMADDWD or its equivalent, which cannot
/// saturate here) multiplies and adds two neighbours into int32. On ARM with SDOT, `dot_products` multiplies
/// four bytes at once. Integer sums have no order: the result does not depend on the instruction set, the
/// number of threads or the number of rows.

#include <cstdint>

#include "fakequant/core/backend/product_shapes.h"

namespace fq::cpu {

/// Computes sums [m, n] = x [m, k] * w [n, k] transposed, for one-byte codes. |sums| must fit int32.
void int16_products(std::int64_t m, std::int64_t n, std::int64_t k, const detail::Codes& x,
                    const detail::Codes& w, std::int32_t* sums);
/// Computes the sums of `batch` consecutive pairs of matrices.
void int16_products(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                    const detail::Codes& x, const detail::Codes& w, std::int32_t* sums);

/// Returns whether `convolve_patches` is the fastest convolution on this processor: with SDOT, for filters of
/// a minimum length.
[[nodiscard]] bool uses_patches(const detail::ConvShape& shape);

/// Computes sums [n, oh, ow, o] = conv(x [n, h, w, c], w [o, c/groups, kh, kw]), for one-byte codes. |sums|
/// must fit int32. Each output pixel is a row of the pixels that its filters read, with zeros outside of the
/// image.
void convolve_patches(const detail::ConvShape& shape, const detail::Codes& x, const detail::Codes& w,
                      std::int32_t* sums);

/// Returns whether this processor has SDOT of 64-bit ARM (Linux lists it as `asimddp`). False if the library
/// was compiled for another architecture.
[[nodiscard]] bool has_dot_products() noexcept;

/// Computes sums [m, n] = x [m, k] * w [n, k] transposed, for one-byte codes, on the calling thread. |sums|
/// must fit int32. Requires `has_dot_products()`.
void dot_products(std::int64_t m, std::int64_t n, std::int64_t k, const detail::Codes& x,
                  const detail::Codes& w, std::int32_t* sums);

}  // namespace fq::cpu
