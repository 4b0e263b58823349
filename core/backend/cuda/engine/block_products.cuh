#pragma once

/// Products of rows and weights with codes in blocks of 32. Each thread computes one output of a few rows.

#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"

namespace fq::cuda {

inline constexpr int block_words = fq::detail::ggml_block / 4, rows_a_thread = 4;

/// Adds four products of signed bytes to `sum`.
FQ_HD std::int32_t add_products(std::uint32_t a, std::uint32_t b, std::int32_t sum) {
  return FQ_BY_TARGET(__dp4a(static_cast<int>(a), static_cast<int>(b), sum), [&] {
    for (int shift = 0; shift < 32; shift += 8)
      sum += static_cast<std::int8_t>(a >> shift) * static_cast<std::int8_t>(b >> shift);
    return sum;
  }());
}

/// Loads a block of 32 codes, four per word.
FQ_HD void load_words(const std::int8_t* codes, std::uint32_t (&words)[block_words]) {
  load_group(reinterpret_cast<const std::uint32_t*>(codes), block_words, words);
}

/// Operands of a block product. A thread computes one output of a few rows.
struct CodeBlocks {
  const std::int8_t *x, *w;
  std::int64_t rows, outputs, columns;
  Divisor output_divisor;

  CodeBlocks(const Tensor& x_codes, const Tensor& w_codes)
      : x(device_data<std::int8_t>(x_codes)),
        w(device_data<std::int8_t>(w_codes)),
        rows(x_codes.dim(0)),
        outputs(w_codes.dim(0)),
        columns(w_codes.dim(1)),
        output_divisor(w_codes.dim(0)) {}

  [[nodiscard]] std::int64_t items() const { return (rows + rows_a_thread - 1) / rows_a_thread * outputs; }
  struct Place {
    std::int64_t row, output;
    int count;
  };
  [[nodiscard]] FQ_HD Place place(std::int64_t item) const {
    const std::int64_t output = output_divisor.take_remainder(item), row = item * rows_a_thread,
                       left = rows - row;
    return {row, output, left < rows_a_thread ? static_cast<int>(left) : rows_a_thread};
  }
};

}  // namespace fq::cuda
