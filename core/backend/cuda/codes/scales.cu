#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {
namespace {

struct MakeScales {
  fq::detail::ScaleRule rule;
  float *amax, *scale;
  Alarm alarm;
  FQ_HD void operator()(std::int64_t i) const {
    if (!fq::detail::is_range(amax[i])) raise(alarm);
    const auto made = fq::detail::range_and_scale(rule, amax[i]);
    amax[i] = made.amax;
    scale[i] = made.scale;
  }
};

struct OpenRanges {
  const float* amax;
  float* out;
  FQ_HD void operator()(std::int64_t i) const { out[i] = fq::detail::open_range(amax[i]); }
};

}  // namespace

void make_scales(Grid& grid, const fq::detail::ScaleRule& rule, const std::string& text) {
  const Device device = grid.amax.device();
  for_items(device, grid.amax.numel(),
            MakeScales{rule, mutable_data_of<float>(grid.amax), mutable_data_of<float>(grid.scale),
                       alarm(device, text)});
}
void open_ranges(const Tensor& amax, Tensor& out) {
  for_items(amax.device(), amax.numel(), OpenRanges{data_of<float>(amax), mutable_data_of<float>(out)});
}

}  // namespace fq::cuda
