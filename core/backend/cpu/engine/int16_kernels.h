#pragma once

/// Loops of `int16_products` (integer_products.h) for each vector instruction set.

#include <cstdint>

namespace fq::cpu {

/// Multiple for the length of rows: the number of int16 lanes of the widest vectors.
inline constexpr std::int64_t kInt16Multiple = 32;

/// Widens codes [rows, k] to values [rows, pitch]. Values at index k and above are 0.
void widen_codes(const std::int8_t* codes, std::int64_t rows, std::int64_t k, std::int64_t pitch,
                 std::int16_t* values);
void widen_codes(const std::uint8_t* codes, std::int64_t rows, std::int64_t k, std::int64_t pitch,
                 std::int16_t* values);

/// Computes sums [rows, columns], with rows `sums_pitch` apart, = x [rows, pitch] * w [columns, pitch]
/// transposed.
struct Int16Task {
  const std::int16_t *x, *w;
  std::int64_t rows, columns, pitch;
  std::int32_t* sums;
  std::int64_t sums_pitch;
};
void multiply_int16(const Int16Task& task);

/// Computes sums [n] = x [pitch] * w [n, k] transposed: one row of int16 values times int8 codes.
void multiply_row(const std::int16_t* x, const std::int8_t* w, std::int64_t n, std::int64_t k,
                  std::int32_t* sums);

}  // namespace fq::cpu
