#include <algorithm>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq {

Tensor TensorQuantizer::used_amax() const {
  constexpr float least = 0x1p-23f;  // of a learned range: a step below 0 must not end it
  const auto factor = static_cast<float>(descriptor_.scale_amax().value_or(1));
  return detail::listed(
      detail::used_ranges(amax().to(DType::f32), learned_.defined() ? least : 0.0f, factor));
}

/// A range of one element is per tensor, whatever the axes. Without a rank, axes count from the back.
Granularity TensorQuantizer::granularity(int rank) const {
  const BlockSizes& blocks = descriptor_.block_sizes();
  const bool one = amax().numel() == 1;
  if (one && !blocks.scale_bits) return Granularity::per_tensor();
  if (rank >= 0) return descriptor_.granularity(rank);
  if (!blocks.empty()) return Granularity::blocks(blocks.lengths);
  const auto& axes = descriptor_.axis().values();
  return Granularity::per_axis(axes.empty() ? std::vector<int>{-1} : axes);
}

/// What scales of (4,3) are multiples of, on the host: it waits for ranges of a GPU.
float TensorQuantizer::global_amax(const Tensor& ranges) const {
  if (descriptor_.has_dynamic_blocks() && amax().defined()) return used_amax().to_vector<float>()[0];
  return std::ranges::max(ranges.to_vector<float>());
}

QuantSpec TensorQuantizer::spec_of(const Tensor& amax, const Granularity& granularity) const {
  const auto& bits = descriptor_.block_sizes().scale_bits;
  QuantSpec spec;
  if (bits && !granularity.is_per_tensor()) {
    const float global = *bits == NumBits(4, 3) ? global_amax(amax) : 0.0f;
    spec = QuantSpec::with_scale_bits(descriptor_.format(), granularity, amax, *bits, global, name_);
  } else {
    spec = QuantSpec::from_amax(descriptor_.format(), granularity, amax, name_, pow2_, zero_point_);
  }
  spec.pass_through_bwd = pass_through_bwd();
  return spec;
}

QuantSpec TensorQuantizer::dynamic_spec(const Tensor& x) const {
  const Granularity granularity = descriptor_.granularity(x.rank());
  Tensor ranges = descriptor_.block_sizes().empty()
                      ? detail::ranges_of(x, detail::BlockView::of(descriptor_, x.shape()), name_)
                      : detail::ranges_of(x, granularity, name_);
  if (const auto factor = descriptor_.scale_amax())
    ranges = detail::used_ranges(ranges, 0, static_cast<float>(*factor));
  const bool per_tensor = ranges.numel() == 1 && descriptor_.block_sizes().empty();
  return spec_of(ranges, per_tensor ? Granularity::per_tensor() : granularity);
}

QuantSpec TensorQuantizer::static_spec(int rank, Device device) const {
  const Tensor known = amax();
  FQ_CHECK(known.defined(), "quantizer",
           "'{}' has no amax: calibrate it, set amax, or make its descriptor dynamic", name_);
  const SpecKey key{rank, known.version(), device};
  const std::scoped_lock lock(mutex_);
  if (!spec_ || spec_key_ != key) {
    spec_ = spec_of(used_amax(), granularity(rank)).to(device);
    spec_key_ = key;
  }
  return *spec_;
}

QuantSpec TensorQuantizer::spec() const {
  FQ_CHECK(!descriptor_.has_dynamic_blocks() && !descriptor_.dynamic(), "quantizer",
           "'{}' takes its ranges from each input: it has no grid of its own", name_);
  {
    const std::scoped_lock lock(mutex_);
    if (spec_ && spec_key_.version == amax().version() && spec_key_.device.is_cpu()) return *spec_;
  }
  return static_spec(-1, Device::cpu());
}

QuantSpec TensorQuantizer::spec_for(const Variable& x) const {
  (void)descriptor_.granularity(x.rank());  // refuses axes that x does not have
  const bool meta = x.device().is_meta();
  if (meta && (!amax().defined() || !descriptor_.needs_amax() || descriptor_.has_dynamic_blocks()))
    return QuantSpec::from_amax(descriptor_.format(), Granularity::per_tensor(), Tensor::scalar(1.0), name_,
                                pow2_, zero_point_);
  if (descriptor_.has_dynamic_blocks() && descriptor_.needs_amax())
    FQ_CHECK(amax().defined(), "quantizer",
             "'{}' has no amax: calibrate it, set amax, or make its descriptor dynamic", name_);
  if (!descriptor_.needs_amax() || descriptor_.has_dynamic_blocks()) return dynamic_spec(x.tensor());
  return static_spec(x.rank(), meta ? Device::cpu() : x.device());
}

}  // namespace fq
