#include <initializer_list>
#include <span>
#include <vector>

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/reduce.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::AdamArrays, fq::detail::AdamFactors, fq::detail::PairArrays, fq::detail::SgdArrays,
    fq::detail::SgdFactors, fq::detail::SwapArrays;

/// Returns the last of `count` arrays that begins at or before `part`, where first(k) is the first part of
/// array k.
template <class First>
FQ_HD int last_begun(int count, std::int64_t part, const First& first) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first(middle) <= part ? low : high) = middle;
  }
  return low;
}

/// The arrays that fit into the parameters of one launch, each cut into parts. `first[k]` is the first part
/// of array k.
template <class Array>
struct ArrayList {
  // The parameters of a launch have 4 KB: the list needs no copy to the device.
  static constexpr int most = static_cast<int>(3840 / (sizeof(Array) + sizeof(std::int64_t)));
  // The list is a parameter of the kernel, so a captured launch keeps its pointers.
  Array arrays[most];
  std::int64_t first[most];
  int count = 0;

  /// Returns the index of the array that contains `part`.
  [[nodiscard]] FQ_HD int find(std::int64_t part) const {
    return last_begun(count, part, [&](int k) { return first[k]; });
  }
};

/// Calls launch(list, parts) for lists that together hold all arrays in order, cut into parts of `size`
/// elements.
template <class Array, class Launch>
void launch_lists(std::span<const Array> arrays, std::int64_t size, const Launch& launch) {
  ArrayList<Array> list;
  std::int64_t parts = 0;
  for (const auto& array : arrays) {
    if (array.n == 0) continue;
    if (list.count == list.most) {
      launch(list, parts);
      list.count = 0;
      parts = 0;
    }
    list.arrays[list.count] = array;
    list.first[list.count++] = parts;
    parts += (array.n + size - 1) / size;
  }
  if (list.count > 0) launch(list, parts);
}

/// Calls update(array, first, count) for the arrays' groups of eight elements.
template <class Array, class Update>
struct UpdateGroups {
  ArrayList<Array> list;
  Update update;
  FQ_HD void operator()(std::int64_t group) const {
    // A group never crosses arrays: every array begins with a new group.
    const int k = list.find(group);
    const Array& array = list.arrays[k];
    const std::int64_t first = (group - list.first[k]) * group_size, left = array.n - first;
    update(array, first, left < group_size ? static_cast<int>(left) : group_size);
  }
};

/// Counts arrays that an update reads, and arrays that it reads and writes.
template <class T>
void note_update(std::int64_t n, std::initializer_list<const T*> read,
                 std::initializer_list<const T*> updated) {
  const std::int64_t bytes = n * static_cast<std::int64_t>(sizeof(T));
  for (const T* each : read) note_read(each, bytes);
  for (const T* each : updated) {
    note_read(each, bytes);
    note_written(each, bytes);
  }
}
template <class T>
void note_arrays(const SgdArrays<T>& a) {
  note_update<T>(a.n, {a.gradient}, {a.parameter, a.momentum});
}
template <class T>
void note_arrays(const AdamArrays<T>& a) {
  note_update<T>(a.n, {a.gradient}, {a.parameter, a.mean, a.square});
}
template <class T, class Rule>
void note_arrays(const fq::detail::RuleArrays<T, Rule>& a) {
  note_update<T>(a.n, {a.gradient}, {a.parameter, a.state[0], a.state[1], a.state[2]});
}
template <class T>
void note_arrays(const PairArrays<T>& a) {
  note_update<T>(a.n, {a.right}, {a.left});
}
void note_arrays(const SwapArrays& a) { note_update<std::uint32_t>(a.n, {}, {a.left, a.right}); }

template <class Array, class Update>
void launch_updates(std::span<const Array> arrays, Device device, const Update& update) {
  static_assert(sizeof(UpdateGroups<Array, Update>) <= 4000, "a launch takes 4 KB of parameters");
  launch_lists(arrays, group_size, [&](const ArrayList<Array>& list, std::int64_t groups) {
    for (int k = 0; k < list.count; ++k) note_arrays(list.arrays[k]);
    launch_each(device, groups, UpdateGroups<Array, Update>{list, update});
  });
}

template <class T>
struct SgdUpdate {
  SgdFactors<T> f;
  FQ_HD void operator()(const SgdArrays<T>& a, std::int64_t first, int count) const {
    T p[group_size], g[group_size], m[group_size];
    load_group(a.parameter + first, count, p);
    load_group(a.gradient + first, count, g);
    if (a.momentum != nullptr) load_group(a.momentum + first, count, m);
    for (int j = 0; j < group_size; ++j) {
      if (j >= count) continue;
      g[j] = scalar::decayed_gradient(g[j], f.scale, p[j], a.weight_decay);
      T direction = g[j];
      if (a.momentum != nullptr) {
        m[j] = scalar::sgd_momentum(m[j], f.momentum, g[j]);
        direction = f.nesterov ? scalar::nesterov_direction(g[j], m[j], f.momentum) : m[j];
      }
      p[j] = scalar::sgd_parameter(p[j], direction, a.learning_rate);
    }
    if (a.momentum != nullptr) store_group(a.momentum + first, count, m);
    store_group(a.parameter + first, count, p);
  }
};

template <class T>
struct AdamUpdate {
  AdamFactors<T> f;
  FQ_HD void operator()(const AdamArrays<T>& a, std::int64_t first, int count) const {
    T p[group_size], g[group_size], m[group_size], v[group_size];
    load_group(a.parameter + first, count, p);
    load_group(a.gradient + first, count, g);
    load_group(a.mean + first, count, m);
    load_group(a.square + first, count, v);
    for (int j = 0; j < group_size; ++j) {
      if (j >= count) continue;
      p[j] *= a.keep;
      g[j] = scalar::decayed_gradient(g[j], f.scale, p[j], a.weight_decay);
      m[j] = scalar::adam_mean(m[j], f.beta1, g[j], f.rest1);
      v[j] = scalar::adam_square(v[j], f.beta2, g[j], f.rest2);
      p[j] = scalar::adam_parameter(p[j], m[j], a.rate, v[j], a.root, f.eps);
    }
    store_group(a.mean + first, count, m);
    store_group(a.square + first, count, v);
    store_group(a.parameter + first, count, p);
  }
};

template <class T>
struct MoveTowards {
  T rate;
  FQ_HD void operator()(const PairArrays<T>& a, std::int64_t first, int count) const {
    T left[group_size], right[group_size];
    load_group(a.left + first, count, left);
    load_group(a.right + first, count, right);
    for (int j = 0; j < group_size; ++j)
      if (j < count) left[j] = scalar::moving_average(left[j], right[j], rate);
    store_group(a.left + first, count, left);
  }
};

// Uses the formulas of the host (updates.h).
struct UpdateByRule {
  template <class Array>
  FQ_HD void operator()(const Array& a, std::int64_t first, int count) const {
    for (int j = 0; j < count; ++j) a.update(first + j);
  }
};

struct Swap {
  FQ_HD void operator()(const SwapArrays& a, std::int64_t first, int count) const {
    std::uint32_t left[group_size], right[group_size];
    load_group(a.left + first, count, left);
    load_group(a.right + first, count, right);
    store_group(a.left + first, count, right);
    store_group(a.right + first, count, left);
  }
};

struct NormArray {
  std::int64_t first, n;  ///< index of the first of its groups of eight elements, counted over all arrays
  const void* values;
  bool wide;

  FQ_HD void load(std::int64_t at, double (&v)[group_size]) const {
    const int count = n - at < group_size ? static_cast<int>(n - at) : group_size;
    if (wide) return load_group(static_cast<const double*>(values) + at, count, v);
    load_converted(static_cast<const float*>(values) + at, count, v);
  }
};

struct SquaresOfGroup {
  const NormArray* arrays;
  int count;

  FQ_HD double operator()(std::int64_t group) const {
    const NormArray& own = arrays[last_begun(count, group, [&](int k) { return arrays[k].first; })];
    // load_group fills missing elements with 0.
    double v[group_size], sum = 0.0;
    own.load((group - own.first) * group_size, v);
    for (const double each : v) sum += each * each;
    return sum;
  }
};

struct AddSquares {
  FQ_HD double operator()(double a, double b) const { return a + b; }
};

}  // namespace

template <class T>
void sgd(std::span<const SgdArrays<T>> arrays, const SgdFactors<T>& factors, Device device) {
  launch_updates(arrays, device, SgdUpdate<T>{factors});
}
template <class T>
void adam(std::span<const AdamArrays<T>> arrays, const AdamFactors<T>& factors, Device device) {
  launch_updates(arrays, device, AdamUpdate<T>{factors});
}
template <class T>
void move_towards(std::span<const PairArrays<T>> arrays, T rate, Device device) {
  launch_updates(arrays, device, MoveTowards<T>{rate});
}
template <class T>
void rule(const fq::detail::AnyRuleList<T>& arrays, Device device) {
  std::visit([&](const auto& list) { launch_updates(list, device, UpdateByRule{}); }, arrays);
}
void swap_contents(std::span<const SwapArrays> arrays, Device device) {
  launch_updates(arrays, device, Swap{});
}

template void sgd(std::span<const SgdArrays<float>>, const SgdFactors<float>&, Device);
template void sgd(std::span<const SgdArrays<double>>, const SgdFactors<double>&, Device);
template void adam(std::span<const AdamArrays<float>>, const AdamFactors<float>&, Device);
template void adam(std::span<const AdamArrays<double>>, const AdamFactors<double>&, Device);
template void move_towards(std::span<const PairArrays<float>>, float, Device);
template void move_towards(std::span<const PairArrays<double>>, double, Device);
template void rule(const fq::detail::AnyRuleList<float>&, Device);
template void rule(const fq::detail::AnyRuleList<double>&, Device);

double sum_of_squares(std::span<const Tensor> tensors, Device device) {
  std::vector<NormArray> arrays;
  std::int64_t groups = 0;
  for (const auto& t : tensors) {
    if (t.numel() == 0) continue;
    arrays.push_back({groups, t.numel(), device_data<void>(t), t.dtype() == DType::f64});
    groups += (t.numel() + group_size - 1) / group_size;
  }
  if (groups == 0) return 0.0;
  const Storage table = constant(arrays.data(), arrays.size() * sizeof arrays[0], device);
  Tensor total = Tensor::empty({}, DType::f64, device);
  reduce_indices(
      device, groups,
      SquaresOfGroup{reinterpret_cast<const NormArray*>(table.data()), static_cast<int>(arrays.size())},
      AddSquares{}, 0.0, mutable_device_data<double>(total));
  return total.item();
}

}  // namespace fq::cuda
