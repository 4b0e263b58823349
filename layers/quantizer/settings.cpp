#include "fakequant/layers/quantizer/settings.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq {
namespace {

void check_learning(const QuantizerSettings& s) {
  if (!s.descriptor.learn_amax() || s.arithmetic == Arithmetic::deployed) return;
  FQ_CHECK(s.descriptor.axis().empty() && s.descriptor.amax().values().size() <= 1, "quantizer",
           "learn_amax of {} with axis: the reference learns one range a tensor, leave axis out or use "
           "arithmetic deployed",
           detail::quantizer_label(s.name));
  FQ_CHECK(s.amax_gradient == AmaxGradient::clip, "quantizer",
           "amax of {} is learned by lsq: the reference learns by clip, use it or arithmetic deployed",
           detail::quantizer_label(s.name));
}

void check_binary(const QuantizerSettings& s) {
  if (!s.binary) return;
  const QuantDescriptor& d = s.descriptor;
  FQ_CHECK(s.arithmetic == Arithmetic::deployed, "quantizer",
           "{} is binary in arithmetic reference, which has no such weights: use arithmetic deployed",
           detail::quantizer_label(s.name));
  FQ_CHECK(d.format() == Format(IntFormat{2, false, true}), "quantizer",
           "{} is binary with {}: use signed narrow integers of 2 bits, or leave binary out",
           detail::quantizer_label(s.name), to_string(d.format()));
  FQ_CHECK(d.block_sizes().empty() && d.axis().values().size() <= 1, "quantizer",
           "{} is binary with blocks or several axes: give one axis, or leave binary out",
           detail::quantizer_label(s.name));
  FQ_CHECK(d.dynamic() && !d.scale_amax(), "quantizer",
           "{} is binary, its scale is the mean of each step: use dynamic, without scale_amax",
           detail::quantizer_label(s.name));
}

}  // namespace

void check(const QuantizerSettings& s) {
  FQ_CHECK(s.momentum > 0 && s.momentum <= 1, "quantizer", "a momentum of {} for {}: use 0 < momentum <= 1",
           s.momentum, detail::quantizer_label(s.name));
  FQ_CHECK(s.descriptor.block_sizes().scale_bits != NumBits(8), "quantizer",
           "scale_bits 8 of {}: only packed tensors keep scales so, use (4, 3) or (8, 0), or leave it out",
           detail::quantizer_label(s.name));
  check_learning(s);
  check_binary(s);
}

}  // namespace fq
