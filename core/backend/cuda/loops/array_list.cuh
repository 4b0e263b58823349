#pragma once

/// Lists of arrays that one launch works through.

#include <span>

#include "fakequant/core/backend/cuda/loops/launch.cuh"

namespace fq::cuda {

/// As many arrays as fit into the parameters of a launch, each cut into parts: `first[k]` is the first part
/// of array k.
template <class Array>
struct ArrayList {
  static constexpr int most = static_cast<int>(3840 / (sizeof(Array) + sizeof(std::int64_t)));
  Array arrays[most];
  std::int64_t first[most];
  int count = 0;

  /// The array that a part belongs to.
  [[nodiscard]] FQ_HD int find(std::int64_t part) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first[middle] <= part ? low : high) = middle;
    }
    return low;
  }
};

/// launch(list, parts) for lists that hold all arrays in their order, each cut into parts of `size` elements.
template <class Array, class Launch>
void for_lists(std::span<const Array> arrays, std::int64_t size, const Launch& launch) {
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

}  // namespace fq::cuda
