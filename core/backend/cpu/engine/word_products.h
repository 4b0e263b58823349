#pragma once

/// Exact products of codes through 16-bit words, for processors whose 8-bit products saturate, and for
/// products of so few rows that oneDNN would take longer to begin.
///
/// Codes of a byte are words; two neighbours are multiplied and added at once into int32 (PMADDWD and its
/// likes, which cannot saturate here), or four bytes where SDOT is (dot_products.h). Sums of integers have no
/// order: every instruction set, number of threads and number of rows gives the same.

#include <cstdint>

#include "fakequant/core/backend/product_shapes.h"

namespace fq::cpu {

/// sums [m, n] = x [m, k] * w [n, k] transposed, of codes of a byte; |sums| must fit int32.
void word_products(std::int64_t m, std::int64_t n, std::int64_t k, const detail::Codes& x,
                   const detail::Codes& w, std::int32_t* sums);
/// The same for `batch` pairs of matrices that lie behind each other.
void word_products(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, const detail::Codes& x,
                   const detail::Codes& w, std::int32_t* sums);

}  // namespace fq::cpu
