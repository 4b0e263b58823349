#include <cmath>
#include <string>

#include "fakequant/core/backend/cuda/elementwise/rows.h"
#include "fakequant/core/backend/cuda/loops/alarm.cuh"
#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/row_groups.h"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"

namespace fq::cuda {
namespace {

struct CheckWhole {
  const float* values;
  Alarm alarm;
  FQ_HD void operator()(std::int64_t i) const {
    if (!(values[i] == std::floor(values[i]))) raise(alarm);
  }
};

struct CheckIndices {
  const std::int64_t* values;
  std::int64_t size;
  Alarm alarm;
  FQ_HD void operator()(std::int64_t i) const {
    if (values[i] < 0 || values[i] >= size) raise(alarm);
  }
};

std::string sentence(std::string_view function, std::string_view what, const std::string& rest) {
  return "[" + std::string(function) + "] not every " + std::string(what) + " is " + rest;
}

template <class T>
struct GatherRows {
  const std::int64_t* ids;
  const T* table;
  T* y;
  std::int64_t rows;
  RowGroups groups;
  FQ_HD void operator()(std::int64_t item) const {
    const auto [i, column, count] = groups.part(item);
    T v[group_size] = {};
    if (ids[i] >= 0 && ids[i] < rows) load_group(table + ids[i] * groups.width + column, count, v);
    store_group(y + i * groups.width + column, count, v);
  }
};

/// The first and the last use of each row of the table; the first is after the last where there is none.
struct FindUses {
  const std::int64_t* ids;
  std::int64_t rows;
  std::int64_t *first, *last;
  FQ_HD void operator()(std::int64_t i) const {
    if (ids[i] < 0 || ids[i] >= rows) return;
    atomic_lower(first[ids[i]], i);
    atomic_raise(last[ids[i]], i);
  }
};

template <class T>
struct SumRows {
  const std::int64_t *ids, *first, *last;
  const T* x;
  T* table;
  RowGroups groups;
  FQ_HD void operator()(std::int64_t item) const {
    const auto [row, column, count] = groups.part(item);
    T sum[group_size] = {};
    for (std::int64_t i = first[row]; i <= last[row]; i += group_size) {
      const std::int64_t left = last[row] - i + 1;
      std::int64_t used[group_size];
      load_group(ids + i, left < group_size ? static_cast<int>(left) : group_size, used);
      for (int k = 0; k < group_size; ++k)
        if (k < left && used[k] == row) add(x + (i + k) * groups.width + column, count, sum);
    }
    store_group(table + row * groups.width + column, count, sum);
  }
  FQ_HD static void add(const T* x, int count, T (&sum)[group_size]) {
    T v[group_size];
    load_group(x, count, v);
    for (int j = 0; j < group_size; ++j)
      if (j < count) sum[j] += v[j];
  }
};

}  // namespace

void check_whole(const Tensor& values, std::string_view function, std::string_view what) {
  const auto text = sentence(function, what, "a whole number");
  for_items(values.device(), values.numel(),
            CheckWhole{data_of<float>(values), alarm(values.device(), text)});
}

void check_indices(const Tensor& values, std::int64_t size, std::string_view function,
                   std::string_view what) {
  const auto text = sentence(function, what, "0 to " + std::to_string(size - 1));
  for_items(values.device(), values.numel(),
            CheckIndices{data_of<std::int64_t>(values), size, alarm(values.device(), text)});
}

void gather_rows(const Tensor& ids, const Tensor& table, Tensor& y) {
  const RowGroups groups(table.dim(1));
  visit_float(table.dtype(), [&]<class T>(T) {
    for_items(y.device(), ids.numel() * groups.groups,
              GatherRows<T>{data_of<std::int64_t>(ids), data_of<T>(table), mutable_data_of<T>(y),
                            table.dim(0), groups});
  });
}

void sum_rows(const Tensor& ids, const Tensor& x, Tensor& table) {
  const RowGroups groups(table.dim(1));
  const Device device = table.device();
  const std::int64_t rows = table.dim(0);
  Tensor first = Tensor::full({rows}, static_cast<double>(ids.numel()), DType::i64, device);
  Tensor last = Tensor::full({rows}, -1.0, DType::i64, device);
  auto* firsts = mutable_data_of<std::int64_t>(first);
  auto* lasts = mutable_data_of<std::int64_t>(last);
  for_items(device, ids.numel(), FindUses{data_of<std::int64_t>(ids), rows, firsts, lasts});
  visit_float(table.dtype(), [&]<class T>(T) {
    for_items(device, rows * groups.groups,
              SumRows<T>{data_of<std::int64_t>(ids), firsts, lasts, data_of<T>(x), mutable_data_of<T>(table),
                         groups});
  });
}

}  // namespace fq::cuda
