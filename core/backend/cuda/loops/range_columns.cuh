#pragma once

/// Matrices with one range per column.

#include "fakequant/core/backend/cuda/loops/column_groups.h"
#include "fakequant/core/backend/cuda/loops/narrow_groups.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"

namespace fq::cuda {

/// Data of a range for a formula. If `inverse` is 0, the formula must divide by `divisor`. `bound` is
/// compared with |x|.
struct alignas(16) RangeRow {
  float scale, divisor, inverse, bound;
};

/// Range rows in memory, each number stored for all ranges together: neighbouring threads read neighbours.
struct RangeTable {
  float* numbers;
  std::int64_t count;
  FQ_HD RangeRow operator()(std::int64_t k) const {
    const float* own = numbers + k;
    return {own[0], own[count], own[2 * count], own[3 * count]};
  }
  template <int size>
  FQ_HD void load(std::int64_t k, int wanted, RangeRow (&rows)[size]) const {
    float v[4][size];
    for (int i = 0; i < 4; ++i) load_group(numbers + i * count + k, wanted, v[i]);
    for (int j = 0; j < size; ++j) rows[j] = {v[0][j], v[1][j], v[2][j], v[3][j]};
  }
  FQ_HD void put(std::int64_t k, const RangeRow& row) const {
    float* own = numbers + k;
    own[0] = row.scale;
    own[count] = row.divisor;
    own[2 * count] = row.inverse;
    own[3 * count] = row.bound;
  }
};

/// QuantizeRanges for columns: a thread reads the ranges of `size` columns once for several lines. All arrays
/// are 16-byte aligned, and columns are whole groups. A formula with a faster version for some ranges reports
/// these by formula.is_short(row) and computes them in formula.short_value(x, row).
template <class T, class Formula, int size>
struct QuantizeColumns {
  Formula formula;
  RangeTable ranges;
  const T* x;
  T* y;
  std::uint8_t* mask;
  ColumnGroups shape;

  template <int loads, class Value>
  FQ_HD void lines(const ColumnGroups::Part& part, const RangeRow (&rows)[size], const Value& value) const {
    shape.template visit_lines<loads>(
        part, [&](std::int64_t first) { return NarrowGroup<T, size>::of(x + first); },
        [&](std::int64_t first, const NarrowGroup<T, size>& group) {
          float v[size];
          group.to(v);
          if constexpr (size == group_size)
            if (mask != nullptr) {
              unsigned bits = 0;
              for (int j = 0; j < size; ++j) bits |= static_cast<unsigned>(formula.mask(v[j], rows[j])) << j;
              mask[first / group_size] = static_cast<std::uint8_t>(bits);
            }
          for (int j = 0; j < size; ++j) v[j] = value(v[j], rows[j]);
          store_narrow(y + first, v);
        });
  }
  FQ_HD void operator()(std::int64_t item) const {
    const auto part = shape.part(item, size);
    RangeRow rows[size];
    ranges.load(part.column, size, rows);
    const auto whole = [&](float v, const RangeRow& row) { return formula.value(v, row); };
    if constexpr (requires { formula.is_short(rows[0]); }) {
      bool short_way = true;
      for (const RangeRow& row : rows) short_way = short_way && formula.is_short(row);
      if (!short_way) return lines<1>(part, rows, whole);
      lines<2>(part, rows, [&](float v, const RangeRow& row) { return formula.short_value(v, row); });
    } else {
      lines<2>(part, rows, whole);
    }
  }
};

template <int size, class T, class Formula>
void quantize_columns(const Tensor& x, Formula formula, RangeTable ranges, Tensor& y, std::uint8_t* mask) {
  using Body = QuantizeColumns<T, Formula, size>;
  const ColumnGroups shape(x.numel() / ranges.count, ranges.count, size,
                           block_threads * loops::resident_blocks<Body>(x.device()));
  launch_each(x.device(), shape.items(),
              Body{formula, ranges, device_data<T>(x), mutable_device_data<T>(y), mask, shape});
}

}  // namespace fq::cuda
