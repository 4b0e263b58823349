#include "fakequant/layers/quantizer/settings.h"

#include "fakequant/core/detail/check.h"

namespace fq {
namespace {

void check_learning(const QuantizerSettings& s) {
  if (!s.descriptor.learn_amax() || s.arithmetic == Arithmetic::deployed) return;
  FQ_CHECK(s.descriptor.axis().empty() && s.descriptor.amax().values().size() <= 1, "quantizer",
           "learn_amax of '{}' with axis: the reference learns one range a tensor, leave axis out or use "
           "arithmetic deployed",
           s.name);
  FQ_CHECK(s.amax_gradient == AmaxGradient::clip, "quantizer",
           "amax of '{}' is learned by lsq: the reference learns by clip, use it or arithmetic deployed",
           s.name);
}

}  // namespace

void check(const QuantizerSettings& s) {
  FQ_CHECK(s.momentum > 0 && s.momentum <= 1, "quantizer", "a momentum of {} for '{}': use 0 < momentum <= 1",
           s.momentum, s.name);
  FQ_CHECK(s.descriptor.block_sizes().scale_bits != NumBits(8), "quantizer",
           "scale_bits 8 of '{}': only packed tensors keep scales so, use (4, 3) or (8, 0), or leave it out",
           s.name);
  check_learning(s);
}

}  // namespace fq
