#pragma once

/// Sums of columns that have the same bits for any number of threads.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace fq::cpu {

/// sums[c] = the sum of rows [rows, columns], of which add(row, to) adds one to `to`: those of blocks of rows
/// are added in their order.
template <class T, class Add>
void sum_columns(std::int64_t rows, std::int64_t columns, T* sums, Add&& add) {
  constexpr std::int64_t block = 256;
  const std::int64_t blocks = (rows + block - 1) / block;
  std::vector<T> partial(static_cast<std::size_t>(blocks * columns));
#pragma omp parallel for schedule(static) if (rows * columns > 32768)
  for (std::int64_t i = 0; i < blocks; ++i)
    for (std::int64_t r = i * block; r < std::min(rows, (i + 1) * block); ++r)
      add(r, partial.data() + i * columns);
  std::vector<double> total(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < blocks * columns; ++i)
    total[static_cast<std::size_t>(i % columns)] += static_cast<double>(partial[static_cast<std::size_t>(i)]);
  std::transform(total.begin(), total.end(), sums, [](double value) { return static_cast<T>(value); });
}

}  // namespace fq::cpu
