#pragma once

/// Elementwise work where elements share the numbers of a range.

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/range_columns.cuh"
#include "fakequant/core/backend/cuda/loops/strides.cuh"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// Rows call of_group(row) where a group of elements has one, of_element(j, row) for each of its elements
/// where it may not.
struct OneRange {
  RangeRow row;
  template <int size, class OfGroup, class OfElement>
  FQ_HD void visit(std::int64_t, int, OfGroup&& of_group, OfElement&&) const {
    of_group(row);
  }
};

/// ranges(k) is the row of range k, the second operand of a walk over the elements; ranges.load(k, count,
/// rows), where it has that, reads those of count ranges at once.
template <class Ranges>
struct WalkedRanges {
  Ranges ranges;
  Strides walk;
  /// Whether each column of a matrix has a range of its own.
  [[nodiscard]] bool by_columns() const {
    return walk.rank == 2 && walk.steps[1][0] == 0 && walk.steps[1][1] == 1;
  }
  template <int size, class OfElement>
  FQ_HD bool visit_together(std::int64_t at, int count, OfElement&& of_element) const {
    if constexpr (requires(RangeRow(&rows)[size]) { ranges.load(at, count, rows); }) {
      RangeRow rows[size];
      ranges.load(at, count, rows);
      for (int j = 0; j < size; ++j)
        if (j < count) of_element(j, rows[j]);
      return true;
    }
    return false;
  }
  template <int size, class OfGroup, class OfElement>
  FQ_HD void visit(std::int64_t first, int count, OfGroup&& of_group, OfElement&& of_element) const {
    const std::int64_t inner = walk.inner(), step = walk.steps[1][walk.rank - 1];
    std::int64_t column = walk.column(first), at = walk.offset(1, first);
    if (step == 0 && column + count <= inner) return of_group(ranges(at));
    if (step == 1 && column + count <= inner && visit_together<size>(at, count, of_element)) return;
    for (int j = 0; j < size; ++j) {
      if (j >= count) break;
      if (column == inner) {
        column = 0;
        at = walk.offset(1, first + j);
      }
      of_element(j, ranges(at));
      ++column;
      at += step;
    }
  }
};

/// Of the elements of x and those of a row-major tensor that broadcasts to it.
inline Strides range_walk(const Tensor& x, const Shape& range) {
  return Strides::of({x.shape(),
                      x.layout(),
                      {cpu::strides_of(x.shape(), x.layout()),
                       cpu::broadcast_strides(range, Layout::row_major, x.shape())}});
}

/// The mask of a group: bit j is that of v[j], j < count.
template <class Formula, class Rows>
FQ_HD std::uint8_t mask_byte(const Formula& formula, const Rows& rows, std::int64_t first, int count,
                             const float (&v)[group_size]) {
  unsigned bits = 0;
  const auto of_element = [&](int j, const RangeRow& row) {
    bits |= static_cast<unsigned>(formula.mask(v[j], row)) << j;
  };
  const auto of_group = [&](const RangeRow& row) {
    for (int j = 0; j < group_size; ++j) of_element(j, row);
  };
  rows.template visit<group_size>(first, count, of_group, of_element);
  return static_cast<std::uint8_t>(bits & ((1u << count) - 1));
}

/// y = formula.value(x, row), of groups formula.values(row, group) where it has that; its bit of the mask,
/// where there is one, formula.mask(x, row): of groups of eight then.
template <class T, class Formula, class Rows, int size>
struct QuantizeRanges {
  Formula formula;
  Rows rows;
  const T* x;
  T* y;
  std::uint8_t* mask;

  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[size];
    load_as(x + first, count, v);
    if constexpr (size == group_size)
      if (mask != nullptr) mask[first / group_size] = mask_byte(formula, rows, first, count, v);
    const auto of_element = [&](int j, const RangeRow& row) { v[j] = formula.value(v[j], row); };
    const auto of_group = [&](const RangeRow& row) {
      if constexpr (requires { formula.values(row, v); })
        formula.values(row, v);
      else
        for (int j = 0; j < size; ++j) of_element(j, row);
    };
    rows.template visit<size>(first, count, of_group, of_element);
    store_as(y + first, count, v);
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
  return mask == nullptr ? nullptr : static_cast<std::uint8_t*>(mask->mutable_raw());
}

/// The same without values.
template <class T, class Formula, class Rows>
struct MaskRanges {
  Formula formula;
  Rows rows;
  const T* x;
  std::uint8_t* mask;

  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size];
    load_as(x + first, count, v);
    mask[first / group_size] = mask_byte(formula, rows, first, count, v);
  }
};

/// Of a tensor of type T.
template <class T, class Formula, class Rows>
void quantize_as(const Tensor& x, Formula formula, Rows rows, Tensor& y, Tensor* mask) {
  const auto* from = static_cast<const T*>(x.raw());
  auto* to = static_cast<T*>(y.mutable_raw());
  constexpr int pack = pack_size<T>;
  if constexpr (std::is_same_v<Rows, WalkedRanges<RangeTable>>)
    if (rows.by_columns() && packed(x) && packed(y) && rows.walk.inner() % group_size == 0)
      return mask == nullptr ? quantize_columns<pack, T>(x, formula, rows.ranges, y, nullptr)
                             : quantize_columns<group_size, T>(x, formula, rows.ranges, y, mask_bytes(mask));
  if (mask == nullptr)
    for_groups<pack>(x.device(), x.numel(),
                     QuantizeRanges<T, Formula, Rows, pack>{formula, rows, from, to, nullptr});
  else
    for_groups(x.device(), x.numel(),
               QuantizeRanges<T, Formula, Rows, group_size>{formula, rows, from, to, mask_bytes(mask)});
}
template <class Formula, class Rows>
void quantize_by_rows(const Tensor& x, Formula formula, Rows rows, Tensor& y, Tensor* mask) {
  visit_narrow_float(x.dtype(), [&]<class T>(T) { quantize_as<T>(x, formula, rows, y, mask); });
}
template <class Formula, class Rows>
void mask_by_rows(const Tensor& x, Formula formula, Rows rows, Tensor& mask) {
  visit_narrow_float(x.dtype(), [&]<class T>(T) {
    for_groups(
        x.device(), x.numel(),
        MaskRanges<T, Formula, Rows>{formula, rows, static_cast<const T*>(x.raw()), mask_bytes(&mask)});
  });
}

template <class Make>
struct FillRows {
  Make make;
  const float *amax, *bound;
  RangeTable rows;
  FQ_HD void operator()(std::int64_t k) const { rows.put(k, make(amax[k], bound[k])); }
};

/// f(rows) with the rows that make(amax, bound) gives. Both are f32, row-major, of one shape that broadcasts
/// to x, on the host or its device; the rows of several are made on the device, once each.
template <class Make, class F>
void with_rows(const Tensor& x, const Tensor& amax, const Tensor& bound, Make make, F&& f) {
  if (amax.numel() == 1 && amax.device().is_cpu() && bound.device().is_cpu())
    return f(OneRange{make(*amax.data<float>(), *bound.data<float>())});
  if (x.numel() == 0) return;
  const Tensor a = amax.to(x.device()), b = bound.to(x.device());
  Storage table(amax.numel() * static_cast<std::int64_t>(sizeof(RangeRow)), x.device());
  const RangeTable rows{reinterpret_cast<float*>(table.mutable_data()), amax.numel()};
  for_items(
      x.device(), amax.numel(),
      FillRows<Make>{make, static_cast<const float*>(a.raw()), static_cast<const float*>(b.raw()), rows});
  f(WalkedRanges<RangeTable>{rows, range_walk(x, amax.shape())});
}

template <class Formula, class Make>
void quantize_ranges(const Tensor& x, Formula formula, const Tensor& amax, const Tensor& bound, Make make,
                     Tensor& y, Tensor* mask) {
  with_rows(x, amax, bound, make, [&](const auto& rows) { quantize_by_rows(x, formula, rows, y, mask); });
}

}  // namespace fq::cuda
