#pragma once

/// Exact products of codes by SDOT of 64-bit ARM, which multiplies four bytes by four and adds the products
/// to an int32: processors since about 2018 have it (`asimddp` among Linux's names of what they offer).

#include <cstdint>

#include "fakequant/core/backend/product_shapes.h"

namespace fq::cpu {

/// Whether this processor has them; never where the library was compiled for another architecture.
[[nodiscard]] bool has_dot_products() noexcept;

/// sums [m, n] = x [m, k] * w [n, k] transposed, of codes of a byte, on the calling thread; |sums| must fit
/// int32. Only where `has_dot_products()`.
void dot_products(std::int64_t m, std::int64_t n, std::int64_t k, const detail::Codes& x,
                  const detail::Codes& w, std::int32_t* sums);

}  // namespace fq::cpu
