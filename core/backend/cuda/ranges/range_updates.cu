#include "fakequant/core/backend/cuda/loops/alarm.cuh"
#include "fakequant/core/backend/cuda/loops/map.cuh"
#include "fakequant/core/backend/cuda/ranges/range_updates.h"
#include "fakequant/core/numerics/detail/range_formulas.h"

namespace fq::cuda {
namespace {

struct CheckFinite {
  const float* amax;
  Alarm nan, infinity;
  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size];
    load_group(amax + first, count, v);
    for (float each : v)
      if (!fq::detail::is_range(each)) raise(each != each ? nan : infinity);
  }
};

struct UseRange {
  float least, factor;
  FQ_HD float operator()(float amax) const { return fq::detail::used_range(amax, least, factor); }
};

struct MoveRange {
  float momentum;
  FQ_HD float operator()(float amax, float batch) const {
    return fq::detail::moved_range(amax, batch, momentum);
  }
};

}  // namespace

void check_finite(const Tensor& amax, const std::string& nan, const std::string& infinity) {
  const Device device = amax.device();
  for_groups(device, amax.numel(),
             CheckFinite{data_of<float>(amax), alarm(device, nan), alarm(device, infinity)});
}

void use_ranges(const Tensor& amax, float least, float factor, Tensor& out) {
  map<float>(amax, out, UseRange{least, factor});
}

void move_ranges(Tensor& amax, const Tensor& batch, float momentum) {
  map<float>(amax, batch, amax, MoveRange{momentum});
}

}  // namespace fq::cuda
