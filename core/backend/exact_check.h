#pragma once

/// Whether products of codes come out right, found out by multiplying some.

#include <functional>
#include <string>

#include "fakequant/core/backend/product_shapes.h"

namespace fq::detail {

/// Exact products of a device, of arrays on the host, with the types of exact products.
struct ExactProducts {
  std::function<void(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                     std::int32_t* sums)>
      gemm;
  std::function<void(const ConvShape& shape, const Codes& x, const Codes& w, std::int32_t* sums)> conv;
};

/// Of i8 and u8 codes of the full range, with runs of the extremes that saturate 16-bit sums of pairs. Empty
/// where all come out right; else what is wrong, or the text of the BackendError that a product throws.
[[nodiscard]] std::string why_sums_are_wrong(const ExactProducts& products);

}  // namespace fq::detail
