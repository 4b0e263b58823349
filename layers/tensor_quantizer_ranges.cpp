#include <algorithm>
#include <cmath>

#include "fakequant/calib/cpu/ranges.h"
#include "fakequant/core/check.h"
#include "fakequant/layers/block_view.h"
#include "fakequant/layers/tensor_quantizer.h"

namespace fq {
namespace {

/// One range as rank 0, several as a list, in f32.
Tensor flat(const Tensor& amax) {
  const Tensor values = amax.to(DType::f32).clone();
  return values.numel() == 1 ? values.reshape({}) : values.reshape({-1});
}

/// Calls `use`, and names the quantizer in its NumericError.
template <class Use>
auto named(const std::string& name, Use&& use) try {
  return use();
} catch (const NumericError& error) {
  throw NumericError(fmt::format("{}, at '{}'", error.what(), name));
}

/// The largest magnitudes of x, one a range.
Tensor ranges_of(const Tensor& x, const detail::BlockView& view, const std::string& name) {
  const Tensor out = cpu::amax(view.apply(x.to(DType::f32)), view.kept(), "quantizer");
  named(name, [&] { cpu::check_finite(out, "quantizer"); });
  return flat(out);
}

}  // namespace

void TensorQuantizer::check_learning() const {
  if (!descriptor_.learn_amax() || arithmetic_ == Arithmetic::deployed) return;
  FQ_CHECK(descriptor_.axis().empty() && descriptor_.amax().values().size() <= 1, "quantizer",
           "learn_amax of '{}' with axis: the reference learns one range a tensor, leave axis out or use "
           "arithmetic deployed",
           name_);
  FQ_CHECK(amax_gradient_ == AmaxGradient::clip, "quantizer",
           "amax of '{}' is learned by lsq: the reference learns by clip, use it or arithmetic deployed",
           name_);
}

void TensorQuantizer::set_amax_gradient(AmaxGradient gradient) {
  const AmaxGradient before = std::exchange(amax_gradient_, gradient);
  try {
    check_learning();
  } catch (...) {
    amax_gradient_ = before;
    throw;
  }
}

/// A parameter keeps its identity while its shape stays: optimizers hold it.
void TensorQuantizer::keep_amax(const Tensor& amax) {
  const Tensor kept = arithmetic_ == Arithmetic::reference ? amax.clone() : flat(amax);
  if (!descriptor_.learn_amax()) {
    drop_amax();
    amax_ = kept;
    return;
  }
  const Tensor values = flat(kept);
  amax_ = {};
  if (learned_.defined() && learned_.shape() == values.shape()) {
    learned_.mutable_tensor().copy_from(values);
    return;
  }
  remove_parameter("amax");
  learned_ = add_parameter("amax", values);
}

void TensorQuantizer::drop_amax() {
  remove_parameter("amax");
  learned_ = {};
  amax_ = {};
}

void TensorQuantizer::set_amax(const Tensor& amax) {
  const bool single = descriptor_.axis().empty() && descriptor_.block_sizes().empty() &&
                      descriptor_.amax().values().size() <= 1;
  FQ_CHECK(amax.defined() && amax.numel() > 0, "quantizer",
           "amax of '{}' is empty: give one value, or one per channel", name_);
  FQ_CHECK(amax.numel() == 1 || !(single || descriptor_.has_dynamic_blocks()), "quantizer",
           "amax of '{}' has {} elements, a {} quantizer takes one", name_, amax.numel(),
           single ? "per-tensor" : "dynamic block");
  FQ_CHECK(descriptor_.needs_amax(), "quantizer", "amax for '{}', which takes its ranges from each input",
           name_);
  const Tensor before = this->amax();
  FQ_CHECK(!before.defined() || before.numel() == 1 || amax.numel() == before.numel(), "quantizer",
           "amax of '{}' has {} elements, it had {}: give one amax per channel", name_, amax.numel(),
           before.numel());
  const Tensor values = amax.to(DType::f32);
  for (const float v : values.to_vector<float>())
    FQ_CHECK(v >= 0 && std::isfinite(v), "quantizer",
             "amax of '{}' is {}: it must be finite and not negative", name_, v);
  keep_amax(amax);
  forget();
}

Calibrator& TensorQuantizer::calibrator() {
  if (!calibrator_) calibrator_ = make_calibrator(descriptor_.calib_method(), {.axis = descriptor_.axis()});
  return *calibrator_;
}

void TensorQuantizer::collect(const Tensor& x) {
  const auto view = detail::BlockView::of(descriptor_, x.shape());
  const bool blocks = !descriptor_.block_sizes().empty();
  if (blocks && (!calibrator_ || calibrator_->empty()))
    calibrator_ = make_calibrator(descriptor_.calib_method(), {.axis = view.kept()});
  named(name_, [&] { calibrator().collect(view.apply(x)); });
}

std::optional<float> TensorQuantizer::observed_minimum() const {
  return calibrator_ ? calibrator_->minimum() : std::nullopt;
}

void TensorQuantizer::load_calibrated_amax(const AmaxOptions& options) {
  FQ_CHECK(calibrator_ && !calibrator_->empty(), "calibrate", "'{}' has seen no data: run at least one batch",
           name_);
  if (may_become_unsigned_ && descriptor_.format().is_integer() && *calibrator_->minimum() >= 0) {
    auto changed = descriptor_.options();
    changed.is_unsigned = true;
    descriptor_ = QuantDescriptor(changed);
    zero_point_ = 0;
  }
  AmaxOptions chosen = options;
  chosen.num_bits = descriptor_.num_bits();
  chosen.is_unsigned = descriptor_.is_unsigned();
  keep_amax(calibrator_->compute_amax(chosen));
  forget();
}

void TensorQuantizer::move_amax(const Variable& x) {
  const Tensor batch = ranges_of(x.tensor(), detail::BlockView::of(descriptor_, x.shape()), name_);
  if (!amax_.defined()) return set_amax(batch);
  Tensor moved = amax_.to(DType::f32).clone();
  auto* values = moved.mutable_data<float>();
  for (std::int64_t i = 0; i < moved.numel(); ++i)
    values[i] += static_cast<float>(momentum_) * (batch.data<float>()[i] - values[i]);
  set_amax(moved.to(amax_.dtype()));
}

Tensor TensorQuantizer::used_amax() const {
  constexpr float least = 0x1p-23f;  // of a learned range: a step below 0 must not end it
  Tensor used = flat(amax());
  auto* values = used.mutable_data<float>();
  const auto factor = static_cast<float>(descriptor_.scale_amax().value_or(1));
  for (std::int64_t i = 0; i < used.numel(); ++i) {
    if (learned_.defined()) values[i] = std::max(values[i], least);
    values[i] *= factor;
  }
  return used;
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

QuantSpec TensorQuantizer::spec_of(const Tensor& amax, const Granularity& granularity) const {
  const auto& bits = descriptor_.block_sizes().scale_bits;
  QuantSpec spec;
  if (bits && !granularity.is_per_tensor()) {
    const auto values = amax.to_vector<float>();
    float global = *std::ranges::max_element(values);
    if (descriptor_.has_dynamic_blocks() && this->amax().defined())
      global = used_amax().to_vector<float>()[0];
    spec = QuantSpec::with_scale_bits(descriptor_.format(), granularity, amax, *bits, global, name_);
  } else {
    spec = QuantSpec::from_amax(descriptor_.format(), granularity, amax, name_, pow2_, zero_point_);
  }
  spec.pass_through_bwd = pass_through_bwd();
  return spec;
}

QuantSpec TensorQuantizer::dynamic_spec(const Tensor& x) const {
  const Granularity granularity = descriptor_.granularity(x.rank());
  const auto& lengths = descriptor_.block_sizes().lengths;
  const bool last =
      lengths.size() == 1 && normalize_axis(lengths.begin()->first, x.rank(), "quantizer") == x.rank() - 1;
  const auto view =
      last ? detail::BlockView(x.shape(), std::map{std::pair{x.rank() - 1, lengths.begin()->second}})
           : detail::BlockView::of(descriptor_, x.shape());
  Tensor ranges = ranges_of(x, view, name_);
  if (const auto factor = descriptor_.scale_amax()) {
    auto* values = ranges.mutable_data<float>();
    for (std::int64_t i = 0; i < ranges.numel(); ++i) values[i] *= static_cast<float>(*factor);
  }
  const bool per_tensor = ranges.numel() == 1 && descriptor_.block_sizes().empty();
  return spec_of(ranges, per_tensor ? Granularity::per_tensor() : granularity);
}

QuantSpec TensorQuantizer::static_spec(int rank) const {
  const Tensor known = amax();
  FQ_CHECK(known.defined(), "quantizer",
           "'{}' has no amax: calibrate it, set amax, or make its descriptor dynamic", name_);
  const std::pair key{rank, known.version()};
  const std::scoped_lock lock(mutex_);
  if (!spec_ || spec_key_ != key) {
    spec_ = spec_of(used_amax(), granularity(rank));
    spec_key_ = key;
  }
  return *spec_;
}

QuantSpec TensorQuantizer::spec() const {
  FQ_CHECK(!descriptor_.has_dynamic_blocks() && !descriptor_.dynamic(), "quantizer",
           "'{}' takes its ranges from each input: it has no grid of its own", name_);
  {
    const std::scoped_lock lock(mutex_);
    if (spec_ && spec_key_.second == amax().version()) return *spec_;
  }
  return static_spec(-1);
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
  return static_spec(x.rank());
}

}  // namespace fq
