#include <algorithm>
#include <cmath>

#include "fakequant/core/check.h"
#include "fakequant/layers/block_ranges.h"
#include "fakequant/layers/tensor_quantizer.h"

namespace fq {
namespace {

std::unique_ptr<Calibrator> calibrator_of(const QuantDescriptor& d, Axes kept, const std::string& name) {
  FQ_CHECK(d.calib_method() != "scale_sweep" ||
               (d.block_sizes().scale_bits == NumBits(4, 3) && !d.has_dynamic_blocks()),
           "quantizer",
           "calib_method scale_sweep of '{}': it is for static blocks with scale_bits (4, 3), use mse_search",
           name);
  return make_calibrator(d.calib_method(), {.axis = std::move(kept),
                                            .num_bits = d.num_bits(),
                                            .is_unsigned = d.is_unsigned(),
                                            .narrow_range = d.narrow_range()});
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
  const Tensor kept = arithmetic_ == Arithmetic::reference ? amax.clone() : detail::flat_ranges(amax);
  if (!descriptor_.learn_amax()) {
    drop_amax();
    amax_ = kept;
    return;
  }
  const Tensor values = detail::flat_ranges(kept);
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
  if (!calibrator_) calibrator_ = calibrator_of(descriptor_, descriptor_.axis(), name_);
  return *calibrator_;
}

void TensorQuantizer::collect(const Tensor& x) {
  const auto view = detail::BlockView::of(descriptor_, x.shape());
  const bool blocks = !descriptor_.block_sizes().empty();
  if (blocks && (!calibrator_ || calibrator_->empty()))
    calibrator_ = calibrator_of(descriptor_, view.kept(), name_);
  try {
    calibrator().collect(view.apply(x));
  } catch (const NumericError& error) {
    detail::rethrow_named(error, name_);
  }
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
  const Tensor batch = detail::ranges_of(x.tensor(), detail::BlockView::of(descriptor_, x.shape()), name_);
  if (!amax_.defined()) return set_amax(batch);
  Tensor moved = amax_.to(DType::f32).clone();
  auto* values = moved.mutable_data<float>();
  for (std::int64_t i = 0; i < moved.numel(); ++i)
    values[i] += static_cast<float>(momentum_) * (batch.data<float>()[i] - values[i]);
  set_amax(moved.to(amax_.dtype()));
}

}  // namespace fq
