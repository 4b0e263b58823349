#include <algorithm>
#include <cmath>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq {

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
  const Tensor kept =
      arithmetic_ == Arithmetic::reference ? amax.to(Device::cpu()).clone() : detail::flat_ranges(amax);
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
  learned_ = add_parameter("amax", values.to(device_));
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

/// In place: a step that is captured finds the ranges where it left them.
void TensorQuantizer::move_amax(const Variable& x) {
  const bool first = !amax_.defined(), one = !first && amax_.numel() == 1;
  const auto view =
      one ? detail::BlockView(x.shape(), Axes{}) : detail::BlockView::of(descriptor_, x.shape());
  Tensor batch = detail::ranges_of(x.tensor(), view, name_);
  if (descriptor_.has_dynamic_blocks()) batch = batch.to(Device::cpu());  // what scales are made of
  if (first) amax_ = Tensor::zeros(batch.shape(), DType::f32, batch.device());
  FQ_CHECK(batch.numel() == amax_.numel(), "quantizer",
           "'{}' has {} ranges, its input {} gives {}: running ranges want inputs of one shape", name_,
           amax_.numel(), to_string(x.shape()), batch.numel());
  amax_ = amax_.to(batch.device());
  Tensor moved = amax_.to(DType::f32);
  detail::move_ranges(moved, batch, first ? 1.0f : static_cast<float>(momentum_));
  if (amax_.dtype() != DType::f32) amax_.copy_from(moved.to(amax_.dtype()));
  forget();
}

}  // namespace fq
