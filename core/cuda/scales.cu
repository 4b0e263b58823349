#include "fakequant/core/cuda/alarm.cuh"
#include "fakequant/core/cuda/launch.cuh"
#include "fakequant/core/cuda/scales.h"

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

template <class Rule>
void make_each(QuantSpec& spec, const Rule& rule, const std::string& text) {
  const Device device = spec.amax.device();
  for_items(device, spec.amax.numel(),
            MakeScales<Rule>{rule, static_cast<float*>(spec.amax.mutable_raw()),
                             static_cast<float*>(spec.scale.mutable_raw()), alarm(device, text)});
}

}  // namespace

void make_scales(QuantSpec& spec, const fq::detail::FromAmax& rule, const std::string& text) {
  make_each(spec, rule, text);
}
void make_scales(QuantSpec& spec, const fq::detail::OfScaleBits& rule, const std::string& text) {
  make_each(spec, rule, text);
}

}  // namespace fq::cuda
