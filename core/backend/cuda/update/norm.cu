#include <vector>

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/reduce.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/backend/cuda/update/updates.h"

namespace fq::cuda {
namespace {

struct NormArray {
  std::int64_t first, n;  ///< the first of its groups of eight elements among all groups
  const void* values;
  bool wide;

  FQ_HD void load(std::int64_t at, double (&v)[group_size]) const {
    const int count = n - at < group_size ? static_cast<int>(n - at) : group_size;
    if (wide) return load_group(static_cast<const double*>(values) + at, count, v);
    load_as(static_cast<const float*>(values) + at, count, v);
  }
};

struct SquaresOfGroup {
  const NormArray* arrays;
  int count;

  FQ_HD double operator()(std::int64_t group) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (arrays[middle].first <= group ? low : high) = middle;
    }
    double v[group_size], sum = 0.0;
    arrays[low].load((group - arrays[low].first) * group_size, v);
    for (const double each : v) sum += each * each;
    return sum;
  }
};

struct AddSquares {
  FQ_HD double operator()(double a, double b) const { return a + b; }
};

}  // namespace

double sum_of_squares(std::span<const Tensor> tensors, Device device) {
  std::vector<NormArray> arrays;
  std::int64_t groups = 0;
  for (const auto& t : tensors) {
    if (t.numel() == 0) continue;
    arrays.push_back({groups, t.numel(), t.raw(), t.dtype() == DType::f64});
    groups += (t.numel() + group_size - 1) / group_size;
  }
  if (groups == 0) return 0.0;
  const Storage table = constant(arrays.data(), arrays.size() * sizeof arrays[0], device);
  Tensor total = Tensor::empty({}, DType::f64, device);
  reduce_indices(
      device, groups,
      SquaresOfGroup{reinterpret_cast<const NormArray*>(table.data()), static_cast<int>(arrays.size())},
      AddSquares{}, 0.0, mutable_data_of<double>(total));
  return total.item();
}

}  // namespace fq::cuda
