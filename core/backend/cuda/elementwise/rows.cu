#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/row_shapes.h"
#include "fakequant/core/backend/cuda/loops/sort.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"

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
  std::int64_t size, allowed;
  Alarm alarm;
  FQ_HD void operator()(std::int64_t i) const {
    if ((values[i] < 0 || values[i] >= size) && values[i] != allowed) raise(alarm);
  }
};

// The message of an alarm is fixed before the launch, so it cannot name the position or the value.
std::string sentence(std::string_view function, std::string_view what, const std::string& rest) {
  return "[" + std::string(function) + "] " + std::string(what) + ": a value is not " + rest;
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
    // An invalid id has raised an alarm. It must not read outside of the table.
    if (ids[i] >= 0 && ids[i] < rows) load_group(table + ids[i] * groups.width + column, count, v);
    store_group(y + i * groups.width + column, count, v);
  }
};

/// Records the row of each id, or `rows` for an invalid id, and its position.
struct NumberUses {
  const std::int64_t* ids;
  std::int64_t rows;
  std::uint32_t *keys, *positions;
  FQ_HD void operator()(std::int64_t i) const {
    keys[i] = static_cast<std::uint32_t>(ids[i] < 0 || ids[i] >= rows ? rows : ids[i]);
    positions[i] = static_cast<std::uint32_t>(i);
  }
};

/// Begin and end of a row's uses in the sorted list. Equal if there are none.
struct Uses {
  std::uint32_t begin, end;
};
// Each thread compares its key with both neighbours. A row's uses begin at the first of equal keys, and end
// at the last.
struct FindUses {
  const std::uint32_t* keys;
  std::int64_t count;
  Uses* uses;  // one row more than the table
  FQ_HD void operator()(std::int64_t i) const {
    if (i == 0 || keys[i - 1] != keys[i]) uses[keys[i]].begin = static_cast<std::uint32_t>(i);
    if (i + 1 == count || keys[i + 1] != keys[i]) uses[keys[i]].end = static_cast<std::uint32_t>(i + 1);
  }
};

template <class T>
// One thread per row and eight columns adds all uses of the row, in the order of the ids.
struct SumRows {
  const Uses* uses;
  const std::uint32_t* positions;
  const T* x;
  T* table;
  RowGroups groups;
  FQ_HD void operator()(std::int64_t item) const {
    const auto [row, column, count] = groups.part(item);
    const Uses own = uses[row];
    T sum[group_size] = {};
    for (std::uint32_t k = own.begin; k < own.end; ++k) {
      T v[group_size];
      load_group(x + positions[k] * groups.width + column, count, v);
      for (int j = 0; j < group_size; ++j)
        if (j < count) sum[j] += v[j];
    }
    store_group(table + row * groups.width + column, count, sum);
  }
};

struct OneHot {
  const std::int64_t* labels;
  float* out;
  std::int64_t inner;
  Divisor class_divisor, inner_divisor;
  FQ_HD void operator()(std::int64_t at) const {
    std::int64_t rest = at;
    const std::int64_t i = inner_divisor.take_remainder(rest), c = class_divisor.take_remainder(rest);
    out[at] = labels[rest * inner + i] == c ? 1.0f : 0.0f;
  }
};

}  // namespace

void check_whole(const Tensor& values, std::string_view function, std::string_view what) {
  const auto text = sentence(function, what, "a whole number");
  launch_each(values.device(), values.numel(),
              CheckWhole{device_data<float>(values), alarm(values.device(), text, AlarmKind::argument)});
}

void check_indices(const Tensor& values, std::int64_t size, std::optional<std::int64_t> allowed,
                   std::string_view function, std::string_view what) {
  const auto text = sentence(function, what, "in 0 to " + std::to_string(size - 1));
  launch_each(values.device(), values.numel(),
              CheckIndices{device_data<std::int64_t>(values), size,
                           // 0 is a valid index, unless there is none.
                           allowed.value_or(size > 0 ? 0 : std::numeric_limits<std::int64_t>::min()),
                           alarm(values.device(), text, AlarmKind::argument)});
}

void gather_rows(const Tensor& ids, const Tensor& table, Tensor& y) {
  const RowGroups groups(table.dim(1));
  visit_float(table.dtype(), [&]<class T>(T) {
    launch_each(y.device(), ids.numel() * groups.groups,
                GatherRows<T>{device_data<std::int64_t>(ids), device_data<T>(table),
                              mutable_device_data<T>(y), table.dim(0), groups});
  });
}

void sum_rows(const Tensor& ids, const Tensor& x, Tensor& table) {
  const RowGroups groups(table.dim(1));
  const Device device = table.device();
  const std::int64_t rows = table.dim(0), count = ids.numel();
  if ((rows | count) >> 31 != 0)
    throw ArgumentError("[cuda] the table or the ids have 2^31 or more rows: split them");
  Tensor words = Tensor::empty({4, count}, DType::i32, device);
  // Sorting the ids groups the uses of each row, in order: atomic additions would make the sum order random.
  auto* own = reinterpret_cast<std::uint32_t*>(mutable_device_data<std::int32_t>(words));
  const KeyedPairs pairs{own, own + count, own + 2 * count, own + 3 * count};
  launch_each(device, count, NumberUses{device_data<std::int64_t>(ids), rows, own, own + count});
  if (count > 0) sort_pairs(device, pairs, count, std::bit_width(static_cast<std::uint64_t>(rows)));
  // One more row collects invalid ids, which add nothing to the table.
  Tensor found = Tensor::zeros({rows + 1, 2}, DType::i32, device);
  auto* uses = reinterpret_cast<Uses*>(mutable_device_data<std::int32_t>(found));
  launch_each(device, count, FindUses{pairs.sorted_keys, count, uses});
  visit_float(table.dtype(), [&]<class T>(T) {
    launch_each(
        device, rows * groups.groups,
        SumRows<T>{uses, pairs.sorted_values, device_data<T>(x), mutable_device_data<T>(table), groups});
  });
}

void one_hot(const Tensor& labels, const AxisView& view, Tensor& out) {
  launch_each(out.device(), out.numel(),
              OneHot{device_data<std::int64_t>(labels), mutable_device_data<float>(out), view.inner,
                     view.size, view.inner});
}

}  // namespace fq::cuda
