#include "fakequant/core/backend/cpu/engine/word_products.h"

#include <algorithm>

#include "fakequant/core/backend/cpu/engine/dot_products.h"
#include "fakequant/core/backend/cpu/engine/word_kernels.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {
namespace {

using detail::Codes;

constexpr std::int64_t kTaskRows = 64;      // of a task
constexpr std::int64_t kFew = 1 << 16;      // products that threads are not worth waking for
constexpr std::int64_t kRowsAsTheyAre = 2;  // of x: w is read as often, and is not widened first

std::int64_t pitch_of(std::int64_t k) { return (k + kWordsAtOnce - 1) / kWordsAtOnce * kWordsAtOnce; }

void widen_rows(const Codes& codes, std::int64_t first, std::int64_t rows, std::int64_t k,
                std::int16_t* words) {
  const std::int64_t pitch = pitch_of(k);
  if (codes.dtype == DType::u8)
    widen_codes(static_cast<const std::uint8_t*>(codes.data) + first * k, rows, k, pitch, words);
  else
    widen_codes(static_cast<const std::int8_t*>(codes.data) + first * k, rows, k, pitch, words);
}

Tensor words_of(const Codes& codes, std::int64_t rows, std::int64_t k) {
  Tensor out = Tensor::empty({rows, pitch_of(k)}, DType::i16);
  auto* words = out.mutable_data<std::int16_t>();
  if (rows <= kTaskRows) {
    widen_rows(codes, 0, rows, k, words);
    return out;
  }
#pragma omp parallel for schedule(static) if (rows * k > kFew)
  for (std::int64_t r = 0; r < rows; r += kTaskRows)
    widen_rows(codes, r, std::min(kTaskRows, rows - r), k, words + r * pitch_of(k));
  return out;
}

void few_rows(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
              std::int32_t* sums) {
  const Tensor words = words_of(x, m, k);
  for (std::int64_t r = 0; r < m; ++r)
    multiply_row(words.data<std::int16_t>() + r * pitch_of(k), static_cast<const std::int8_t*>(w.data), n, k,
                 sums + r * n);
}

Codes codes_from(const Codes& codes, std::int64_t first) {
  return {static_cast<const char*>(codes.data) + first, codes.dtype, codes.largest};
}

/// Calls `multiply(i, row, rows)` for parts of the rows of each of `batch` products, on all threads.
template <class F>
void for_row_parts(std::int64_t batch, std::int64_t m, std::int64_t products, F&& multiply) {
  const std::int64_t parts = (m + kTaskRows - 1) / kTaskRows;
#pragma omp parallel for schedule(static) if (batch * products > kFew)
  for (std::int64_t task = 0; task < batch * parts; ++task) {
    const std::int64_t row = task % parts * kTaskRows;
    multiply(task / parts, row, std::min(kTaskRows, m - row));
  }
}

}  // namespace

void word_products(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                   std::int32_t* sums) {
  word_products(1, m, n, k, x, w, sums);
}

void word_products(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x,
                   const Codes& w, std::int32_t* sums) {
  if (m * n * batch == 0) return;
  if (has_dot_products())
    return for_row_parts(batch, m, m * n * k, [&](std::int64_t i, std::int64_t row, std::int64_t rows) {
      dot_products(rows, n, k, codes_from(x, (i * m + row) * k), codes_from(w, i * n * k),
                   sums + (i * m + row) * n);
    });
  if (batch == 1 && m <= kRowsAsTheyAre && w.dtype == DType::i8) return few_rows(m, n, k, x, w, sums);
  const Tensor left = words_of(x, batch * m, k), right = words_of(w, batch * n, k);
  const std::int64_t pitch = pitch_of(k);
  const auto *a = left.data<std::int16_t>(), *b = right.data<std::int16_t>();
  for_row_parts(batch, m, m * n * k, [&](std::int64_t i, std::int64_t row, std::int64_t rows) {
    multiply_words(
        {a + (i * m + row) * pitch, b + i * n * pitch, rows, n, pitch, sums + (i * m + row) * n, n});
  });
}

}  // namespace fq::cpu
