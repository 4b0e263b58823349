#pragma once

/// Rows in parts of 4096 elements, whose sums are added in their order.

#include <vector>

#include "fakequant/core/backend/cpu/ranges/rows.h"
#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"

namespace fq::cuda {

/// Part p is one of row p / per_row.
struct RowParts {
  static constexpr std::int64_t size = 4096;
  const float* x;
  std::int64_t rows, length, per_row;

  explicit RowParts(const cpu::Rows& of)
      : x(static_cast<const float*>(of.values.raw())),
        rows(of.count()),
        length(of.length()),
        per_row((of.length() + size - 1) / size) {}
  [[nodiscard]] FQ_HD std::int64_t row(std::int64_t part) const { return quotient(part, per_row); }
  [[nodiscard]] FQ_HD std::int64_t begin(std::int64_t part) const {
    return (part - row(part) * per_row) * size;
  }
  [[nodiscard]] FQ_HD const float* first(std::int64_t part) const {
    return x + row(part) * length + begin(part);
  }
  [[nodiscard]] FQ_HD int count(std::int64_t part) const {
    const std::int64_t left = length - begin(part);
    return static_cast<int>(left < size ? left : size);
  }
};

/// Item i = row * width + k: sums[i] += partial[part - first][k] of the parts [first, last) of its row.
struct AddParts {
  const double* partial;
  double* sums;
  std::int64_t width, per_row, first, last;

  FQ_HD void operator()(std::int64_t i) const {
    const std::int64_t row = quotient(i, width), k = i - row * width;
    const std::int64_t from = row * per_row, to = from + per_row;
    double sum = sums[i];
    for (std::int64_t part = from < first ? first : from; part < to && part < last; ++part)
      sum += partial[(part - first) * width + k];
    sums[i] = sum;
  }
};

/// Adds to sums[r * width ..] what fill(first, count, out) writes: out[p * width + k] of the parts first + p.
template <class Fill>
void add_parts(const cpu::Rows& rows, std::int64_t width, std::vector<double>& sums, Fill&& fill) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 26;
  const Device device = rows.values.device();
  const RowParts parts(rows);
  const std::int64_t all = parts.rows * parts.per_row;
  const std::int64_t chunk = std::clamp<std::int64_t>(most_bytes / (8 * width), 1, all);
  Tensor total = Tensor::from(sums, {static_cast<std::int64_t>(sums.size())}).to(device);
  Tensor partial = Tensor::empty({chunk, width}, DType::f64, device);
  auto* own = static_cast<double*>(partial.mutable_raw());
  for (std::int64_t first = 0; first < all; first += chunk) {
    const std::int64_t last = std::min(all, first + chunk);
    fill(first, last - first, own);
    for_items(device, parts.rows * width,
              AddParts{own, static_cast<double*>(total.mutable_raw()), width, parts.per_row, first, last});
  }
  sums = total.to_vector<double>();
}

}  // namespace fq::cuda
