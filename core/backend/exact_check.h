#pragma once

/// Self-test of exact products of codes.

#include <functional>
#include <string>

#include "fakequant/core/backend/product_shapes.h"

namespace fq::detail {

/// Exact products of a device on host arrays, with the types of exact products.
struct ExactProducts {
  std::function<void(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                     std::int32_t* sums)>
      gemm;
  std::function<void(const ConvShape& shape, const Codes& x, const Codes& w, std::int32_t* sums)> conv;
};

/// Multiplies i8 and u8 codes of the full range, with runs of extremes that saturate 16-bit sums of pairs.
/// Returns an empty text if all sums are correct, else a description of the error, or the text of the
/// BackendError that a product throws.
[[nodiscard]] std::string why_sums_are_wrong(const ExactProducts& products);

}  // namespace fq::detail
