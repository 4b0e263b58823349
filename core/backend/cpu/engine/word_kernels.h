#pragma once

/// The loops of word_products.h for every vector instruction set.

#include <cstdint>

namespace fq::cpu {

/// Words in a row are a multiple of this: of the widest vectors.
inline constexpr std::int64_t kWordsAtOnce = 32;

/// words [rows, pitch] of codes [rows, k]; those from k on are 0.
void widen_codes(const std::int8_t* codes, std::int64_t rows, std::int64_t k, std::int64_t pitch,
                 std::int16_t* words);
void widen_codes(const std::uint8_t* codes, std::int64_t rows, std::int64_t k, std::int64_t pitch,
                 std::int16_t* words);

/// sums [rows, columns], whose rows are `sums_pitch` apart, = x [rows, pitch] * w [columns, pitch]
/// transposed.
struct WordTask {
  const std::int16_t *x, *w;
  std::int64_t rows, columns, pitch;
  std::int32_t* sums;
  std::int64_t sums_pitch;
};
void multiply_words(const WordTask& task);

/// sums [n] = x [pitch] * w [n, k] transposed: one row of words by codes as they are.
void multiply_row(const std::int16_t* x, const std::int8_t* w, std::int64_t n, std::int64_t k,
                  std::int32_t* sums);

}  // namespace fq::cpu
