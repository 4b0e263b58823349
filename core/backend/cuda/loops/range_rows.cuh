#pragma once

/// Elementwise kernels in which several elements share one range.

#include <utility>

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/range_columns.cuh"
#include "fakequant/core/backend/cuda/loops/strides.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// visit(first, count, use) calls use(row) if a group of elements has one range, else use(rows) with one row
/// per element. It has a single call site, because formulas are long.
struct OneRange {
  RangeRow row;
  template <int size, class Use>
  FQ_HD void visit(std::int64_t, int, Use&& use) const {
    use(row);
  }
};

/// ranges(k) returns the row of range k, the second operand of a walk over the elements. ranges.load(k,
/// count, rows), if it exists, reads the rows of count ranges at once.
template <class Ranges>
struct WalkedRanges {
  Ranges ranges;
  Strides walk;
  /// Returns whether each column of a matrix has its own range.
  [[nodiscard]] bool is_columnwise() const {
    return walk.rank == 2 && walk.steps[1][0] == 0 && walk.steps[1][1] == 1;
  }
  /// Reads the rows one by one; repeats the last row after the end. Indices are computed in a loop that is
  /// not unrolled, for two elements at a time, because registers are scarce.
  template <int size, int... pair>
  FQ_HD void gather(std::int64_t first, int count, RangeRow (&rows)[size],
                    std::integer_sequence<int, pair...>) const {
    const auto find = [&](int begin) {
      std::int64_t places[2];
      for (int k = 0; k < 2; ++k) {
        const std::int64_t at = walk.offset(1, first + (begin + k < count ? begin + k : count - 1));
        for (int j = 0; j < 2; ++j) places[j] = j < k ? places[j] : at;
      }
      for (int j = 0; j < 2; ++j) rows[begin + j] = ranges(places[j]);
    };
    (find(2 * pair), ...);
  }
  template <int size, class Use>
  FQ_HD void visit(std::int64_t first, int count, Use&& use) const {
    const std::int64_t step = walk.steps[1][walk.rank - 1], at = walk.offset(1, first);
    const bool one_line = walk.column(first) + count <= walk.inner();
    if (step == 0 && one_line) return use(ranges(at));
    RangeRow rows[size];
    bool together = false;
    if constexpr (requires { ranges.load(at, count, rows); })
      if (step == 1 && one_line) {
        ranges.load(at, count, rows);
        together = true;
      }
    if (!together) gather(first, count, rows, std::make_integer_sequence<int, size / 2>());
    use(rows);
  }
};

/// Returns the walk over the elements of x and of a row-major tensor that broadcasts to x.
inline Strides range_walk(const Tensor& x, const Shape& range) {
  return Strides::of({x.shape(),
                      x.layout(),
                      {cpu::axis_strides(x.shape(), x.layout()),
                       cpu::broadcast_strides(range, Layout::row_major, x.shape())}});
}

namespace loops {

FQ_HD const RangeRow& pick_row(const RangeRow& row, int) { return row; }
template <int size>
FQ_HD const RangeRow& pick_row(const RangeRow (&rows)[size], int j) {
  return rows[j];
}

template <class Formula, class Of, int size>
FQ_HD void apply(const Formula& formula, const Of& of, float (&v)[size]) {
  if constexpr (requires { formula.values(of, v); })
    formula.values(of, v);
  else
    for (int j = 0; j < size; ++j) v[j] = formula.value(v[j], pick_row(of, j));
}

/// Returns the mask byte: bit j belongs to v[j], j < count.
template <class Formula, class Of>
FQ_HD std::uint8_t mask_byte(const Formula& formula, const Of& of, int count, const float (&v)[group_size]) {
  unsigned bits = 0;
  for (int j = 0; j < group_size; ++j)
    bits |= static_cast<unsigned>(formula.mask(v[j], pick_row(of, j))) << j;
  return static_cast<std::uint8_t>(bits & ((1u << count) - 1));
}

}  // namespace loops

/// Sets y = formula.value(x, row), or formula.values(row or rows, group) for groups if it exists. With a
/// mask, sets the bits to formula.mask(x, row), in groups of eight.
template <class T, class Formula, class Rows, int size>
struct QuantizeRanges {
  Formula formula;
  Rows rows;
  const T* x;
  T* y;
  std::uint8_t* mask;

  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[size];
    load_converted(x + first, count, v);
    rows.template visit<size>(first, count, [&](const auto& of) {
      if constexpr (size == group_size)
        if (mask != nullptr) mask[first / group_size] = loops::mask_byte(formula, of, count, v);
      loops::apply(formula, of, v);
    });
    store_converted(y + first, count, v);
  }
};

/// Calls f with a value of the C++ type of f32, f16 or bf16.
template <class F>
void visit_narrow_float(DType dtype, F&& f) {
  if (dtype == DType::f16) return f(float16{});
  if (dtype == DType::bf16) return f(bfloat16{});
  f(float{});
}

inline std::uint8_t* mask_bytes(Tensor* mask) {
  return mask == nullptr ? nullptr : mutable_device_data<std::uint8_t>(*mask);
}

/// Computes only the mask.
template <class T, class Formula, class Rows>
struct MaskRanges {
  Formula formula;
  Rows rows;
  const T* x;
  std::uint8_t* mask;

  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size];
    load_converted(x + first, count, v);
    rows.template visit<group_size>(first, count, [&](const auto& of) {
      mask[first / group_size] = loops::mask_byte(formula, of, count, v);
    });
  }
};

/// Quantizes a tensor of type T.
template <class T, class Formula, class Rows>
void quantize_typed(const Tensor& x, Formula formula, Rows rows, Tensor& y, Tensor* mask) {
  const auto* from = device_data<T>(x);
  auto* to = mutable_device_data<T>(y);
  constexpr int pack = pack_size<T>;
  if constexpr (std::is_same_v<Rows, WalkedRanges<RangeTable>>)
    if (rows.is_columnwise() && packed(x) && packed(y) && rows.walk.inner() % group_size == 0)
      return mask == nullptr ? quantize_columns<pack, T>(x, formula, rows.ranges, y, nullptr)
                             : quantize_columns<group_size, T>(x, formula, rows.ranges, y, mask_bytes(mask));
  if (mask == nullptr)
    launch_groups<pack>(x.device(), x.numel(),
                        QuantizeRanges<T, Formula, Rows, pack>{formula, rows, from, to, nullptr});
  else
    launch_groups(x.device(), x.numel(),
                  QuantizeRanges<T, Formula, Rows, group_size>{formula, rows, from, to, mask_bytes(mask)});
}
template <class Formula, class Rows>
void quantize_by_rows(const Tensor& x, Formula formula, Rows rows, Tensor& y, Tensor* mask) {
  visit_narrow_float(x.dtype(), [&]<class T>(T) { quantize_typed<T>(x, formula, rows, y, mask); });
}
template <class Formula, class Rows>
void mask_by_rows(const Tensor& x, Formula formula, Rows rows, Tensor& mask) {
  visit_narrow_float(x.dtype(), [&]<class T>(T) {
    launch_groups(x.device(), x.numel(),
                  MaskRanges<T, Formula, Rows>{formula, rows, device_data<T>(x), mask_bytes(&mask)});
  });
}

template <class Make>
struct FillRows {
  Make make;
  const float *amax, *bound;
  RangeTable rows;
  FQ_HD void operator()(std::int64_t k) const { rows.put(k, make(amax[k], bound[k])); }
};

/// Calls f(rows) with the rows that make(amax, bound) returns. Both are f32, row-major, of one shape that
/// broadcasts to x, on the host or the device of x. Several rows are computed on the device, once each.
template <class Make, class F>
void with_rows(const Tensor& x, const Tensor& amax, const Tensor& bound, Make make, F&& f) {
  if (amax.numel() == 1 && amax.device().is_cpu() && bound.device().is_cpu())
    return f(OneRange{make(*amax.data<float>(), *bound.data<float>())});
  if (x.numel() == 0) return;
  const Tensor a = amax.to(x.device()), b = bound.to(x.device());
  Storage table(amax.numel() * static_cast<std::int64_t>(sizeof(RangeRow)), x.device());
  const RangeTable rows{mutable_device_data<float>(table), amax.numel()};
  launch_each(x.device(), amax.numel(),
              FillRows<Make>{make, device_data<float>(a), device_data<float>(b), rows});
  f(WalkedRanges<RangeTable>{rows, range_walk(x, amax.shape())});
}

template <class Formula, class Make>
void quantize_ranges(const Tensor& x, Formula formula, const Tensor& amax, const Tensor& bound, Make make,
                     Tensor& y, Tensor* mask) {
  with_rows(x, amax, bound, make, [&](const auto& rows) { quantize_by_rows(x, formula, rows, y, mask); });
}

}  // namespace fq::cuda
