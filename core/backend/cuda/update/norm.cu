#include <vector>

#include "fakequant/core/backend/cuda/loops/array_list.cuh"
#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/update/updates.h"

namespace fq::cuda {
namespace {

constexpr std::int64_t part_elements = 1 << 14;  // of a block

struct NormArray {
  std::int64_t n;
  const void* values;
  bool wide;

  [[nodiscard]] FQ_HD double at(std::int64_t i) const {
    return wide ? static_cast<const double*>(values)[i]
                : static_cast<double>(static_cast<const float*>(values)[i]);
  }
};

/// A block sums part of an array.
struct SquareParts {
  static constexpr int phases = 3, joined = 16;
  struct Shared {
    double sums[block_threads];
  };
  ArrayList<NormArray> list;
  double* parts;

  FQ_HD double part_of(Thread t) const {
    const int k = list.find(t.block);
    const NormArray& array = list.arrays[k];
    const std::int64_t begin = (t.block - list.first[k]) * part_elements, left = array.n - begin;
    const std::int64_t count = left < part_elements ? left : part_elements;
    double sum = 0.0;
    for (std::int64_t i = t.thread; i < count; i += block_threads) {
      const double v = array.at(begin + i);
      sum += v * v;
    }
    return sum;
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    if (Phase == 0) shared.sums[t.thread] = part_of(t);
    if (Phase == 1 && t.thread % joined == 0)
      for (int i = 1; i < joined; ++i) shared.sums[t.thread] += shared.sums[t.thread + i];
    if (Phase == 2 && t.thread == 0) {
      double sum = 0.0;
      for (int i = 0; i < block_threads; i += joined) sum += shared.sums[i];
      parts[t.block] = sum;
    }
  }
};

struct AddParts {
  using Sum = double;
  const double* parts;
  FQ_HD Sum zero() const { return 0.0; }
  FQ_HD void add(Sum& sum, std::int64_t i, std::int64_t) const { sum += parts[i]; }
  FQ_HD void join(Sum& sum, const Sum& other) const { sum += other; }
};

struct PutTotal {
  double* total;
  FQ_HD void operator()(std::int64_t, double sum) const { *total = sum; }
};

}  // namespace

double sum_of_squares(std::span<const Tensor> tensors, Device device) {
  std::vector<NormArray> arrays;
  std::int64_t all = 0;
  for (const auto& t : tensors) {
    arrays.push_back({t.numel(), t.raw(), t.dtype() == DType::f64});
    all += (t.numel() + part_elements - 1) / part_elements;
  }
  Tensor parts = Tensor::empty({all}, DType::f64, device), total = Tensor::empty({}, DType::f64, device);
  auto* next = mutable_data_of<double>(parts);
  for_lists(std::span<const NormArray>(arrays), part_elements,
            [&](const ArrayList<NormArray>& list, std::int64_t blocks) {
              for_blocks(device, blocks, SquareParts{list, next});
              next += blocks;
            });
  reduce_channels(device, {1, 1, all}, AddParts{data_of<double>(parts)},
                  PutTotal{mutable_data_of<double>(total)});
  return total.item();
}

}  // namespace fq::cuda
