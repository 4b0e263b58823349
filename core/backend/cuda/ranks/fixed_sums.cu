#include <algorithm>
#include <cmath>

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"

namespace fq::cuda {
namespace {

/// Adds up to `most` terms. `more` adds them to the existing sums.
// int64 sums in fixed point have no order: the result is the same for any number of ranks.
struct AddFixed {
  static constexpr std::size_t most = 8;
  // The pointers are parameters of the launch: no table is copied to the device.
  const float* terms[most];
  int term_count;
  bool more;
  double scale;
  std::int64_t* sums;

  FQ_HD void operator()(std::int64_t first, int count) const {
    std::int64_t sum[group_size] = {};
    if (more) load_group(sums + first, count, sum);
    for (int t = 0; t < term_count; ++t) {
      float x[group_size];
      load_group(terms[t] + first, count, x);
      for (int j = 0; j < group_size; ++j) sum[j] += scalar::to_fixed(x[j], scale);
    }
    store_group(sums + first, count, sum);
  }
};

struct FromFixed {
  const std::int64_t* sums;
  double unit;
  float* out;

  FQ_HD void operator()(std::int64_t first, int count) const {
    std::int64_t sum[group_size];
    float x[group_size];
    load_group(sums + first, count, sum);
    for (int j = 0; j < group_size; ++j) x[j] = scalar::from_fixed(sum[j], unit);
    store_group(out + first, count, x);
  }
};

}  // namespace

void add_fixed(std::span<const Tensor> terms, int shift, Tensor& sums) {
  AddFixed body{{}, 0, false, std::ldexp(1.0, shift), mutable_device_data<std::int64_t>(sums)};
  // Runs at least once: without terms the sums are 0.
  do {
    const auto now = terms.first(std::min(terms.size(), AddFixed::most));
    body.term_count = static_cast<int>(now.size());
    for (std::size_t t = 0; t < now.size(); ++t) body.terms[t] = device_data<float>(now[t]);
    launch_groups(sums.device(), sums.numel(), body);
    body.more = true;
    terms = terms.subspan(now.size());
  } while (!terms.empty());
}

void from_fixed(const Tensor& sums, int shift, Tensor& out) {
  launch_groups(
      out.device(), out.numel(),
      FromFixed{device_data<std::int64_t>(sums), std::ldexp(1.0, -shift), mutable_device_data<float>(out)});
}

}  // namespace fq::cuda
