#include "fakequant/reference/detail/engine_operands.h"

#include <algorithm>
#include <limits>

#include "fakequant/core/detail/check.h"

namespace fq::detail {

void check_matrix(const Tensor& t, DType dtype, std::string_view what, const char* function) {
  FQ_CHECK(t.defined(), function, "{} is missing", what);
  FQ_CHECK(t.dtype() == dtype, function, "{} is {}: use {}", what, name(t.dtype()), name(dtype));
  FQ_CHECK(t.rank() == 2, function, "{} is {}: use 2 axes", what, to_string(t.shape()));
}

void check_shape(const Tensor& t, DType dtype, const Shape& shape, std::string_view what,
                 const char* function) {
  FQ_CHECK(t.defined(), function, "{} is missing", what);
  FQ_CHECK(t.dtype() == dtype, function, "{} is {}: use {}", what, name(t.dtype()), name(dtype));
  FQ_CHECK(t.shape() == shape, function, "{} is {}: use {}", what, to_string(t.shape()), to_string(shape));
}

void check_columns(std::int64_t columns, std::int64_t length, const char* function) {
  FQ_CHECK(columns > 0, function, "there are no columns: use one or more");
  FQ_CHECK(columns % length == 0, function, "rows of {} are not whole blocks of {}: pad them", columns,
           length);
}

void check_same_columns(std::int64_t x, std::int64_t weight, const char* function) {
  FQ_CHECK(x == weight, function, "the input has {} columns and the weight {}", x, weight);
}

// The full range of int8 needs no loop.
void check_codes(const Tensor& codes, int lower, int upper, const char* function) {
  if (codes.device().is_meta() || (lower <= -128 && upper >= 127)) return;
  const auto* q = codes.data<std::int8_t>();
  for (std::int64_t i = 0; i < codes.numel(); ++i)
    FQ_CHECK(q[i] >= lower && q[i] <= upper, function, "code {} is {}: use {} to {}", i, q[i], lower, upper);
}

// Written as a division, because the product of the three may overflow.
void check_terms(std::int64_t terms, std::int64_t largest_x, std::int64_t largest_w, const char* function) {
  FQ_CHECK(terms <= std::numeric_limits<std::int32_t>::max() / (largest_x * largest_w), function,
           "sums of {} products of codes leave int32: use fewer columns", terms);
}

ZeroRange zero_range(const float* x, std::int64_t count) {
  // Minimum and maximum do not depend on the order, so vectors give the same bits. NaN compares false and is
  // ignored.
  float low = 0, high = 0;
#pragma omp simd reduction(min : low) reduction(max : high)
  for (std::int64_t i = 0; i < count; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  return {low, high};
}

}  // namespace fq::detail
