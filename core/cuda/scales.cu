#include "fakequant/core/cuda/alarm.cuh"
#include "fakequant/core/cuda/launch.cuh"
#include "fakequant/core/cuda/scales.h"
#include "fakequant/core/cuda/tensor_data.h"

namespace fq::cuda {
namespace {

template <class Rule>
struct MakeScales {
  Rule rule;
  float *amax, *scale;
  Alarm alarm;
  FQ_HD void operator()(std::int64_t i) const {
    if (!fq::detail::is_range(amax[i])) raise(alarm);
    const auto made = rule(amax[i]);
    amax[i] = made.amax;
    scale[i] = made.scale;
  }
};

struct OpenRanges {
  const float* amax;
  float* out;
  FQ_HD void operator()(std::int64_t i) const { out[i] = fq::detail::open_range(amax[i]); }
};

template <class Rule>
void make_each(QuantSpec& spec, const Rule& rule, const std::string& text) {
  const Device device = spec.amax.device();
  for_items(device, spec.amax.numel(),
            MakeScales<Rule>{rule, mutable_data_of<float>(spec.amax), mutable_data_of<float>(spec.scale),
                             alarm(device, text)});
}

}  // namespace

void make_scales(QuantSpec& spec, const fq::detail::FromAmax& rule, const std::string& text) {
  make_each(spec, rule, text);
}
void make_scales(QuantSpec& spec, const fq::detail::OfScaleBits& rule, const std::string& text) {
  make_each(spec, rule, text);
}
void open_ranges(const Tensor& amax, Tensor& out) {
  for_items(amax.device(), amax.numel(), OpenRanges{data_of<float>(amax), mutable_data_of<float>(out)});
}

}  // namespace fq::cuda
