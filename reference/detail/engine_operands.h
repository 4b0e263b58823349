#pragma once

/// Checks of the operands of engine products.

#include <cstdint>
#include <string_view>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Smallest work of a loop that is divided among threads.
constexpr std::int64_t engine_parallel = std::int64_t{1} << 14;

/// Each throws ArgumentError in the name of `function`.
void check_matrix(const Tensor& t, DType dtype, std::string_view what, const char* function);
void check_shape(const Tensor& t, DType dtype, const Shape& shape, std::string_view what,
                 const char* function);
/// One column or more, in blocks of `length`.
void check_columns(std::int64_t columns, std::int64_t length, const char* function);
void check_same_columns(std::int64_t x, std::int64_t weight, const char* function);
/// Checks codes of type i8 on the host.
void check_codes(const Tensor& codes, int lower, int upper, const char* function);
/// Checks that the sum of `terms` products of these codes fits int32.
void check_terms(std::int64_t terms, std::int64_t largest_x, std::int64_t largest_w, const char* function);

/// The smallest and the largest of `count` numbers and 0.
struct ZeroRange {
  float low = 0, high = 0;
};
[[nodiscard]] ZeroRange zero_range(const float* x, std::int64_t count);

/// Sum of a[i] * b[i * step].
template <class A>
[[nodiscard]] std::int32_t dot(const A* a, const std::int8_t* b, std::int64_t count, std::int64_t step = 1) {
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i * step];
  return sum;
}

}  // namespace fq::detail
