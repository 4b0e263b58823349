#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {
namespace {

// An invalid range raises the alarm and gives an unspecified scale.
struct MakeScales {
  fq::detail::ScaleRule rule;
  float *amax, *scale;
  Alarm alarm;
  FQ_HD void operator()(std::int64_t i) const {
    if (!fq::detail::is_range(amax[i])) raise(alarm);
    const auto made = fq::detail::range_and_scale(rule, amax[i]);
    // Rounded scales change the range, so both are written.
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
  launch_each(device, grid.amax.numel(),
              MakeScales{rule, updated_device_data<float>(grid.amax), mutable_device_data<float>(grid.scale),
                         alarm(device, text)});
}
void open_ranges(const Tensor& amax, Tensor& out) {
  launch_each(amax.device(), amax.numel(),
              OpenRanges{device_data<float>(amax), mutable_device_data<float>(out)});
}

}  // namespace fq::cuda
