#include "fakequant/layers/modules/norm.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/rerun.h"
#include "fakequant/core/ops/norm.h"

namespace fq {

BatchNorm::BatchNorm(std::int64_t channels, double eps, double momentum) : eps_(eps), momentum_(momentum) {
  FQ_CHECK(channels > 0 && eps > 0 && momentum >= 0 && momentum <= 1, "batch_norm",
           "{} channels, eps {}, momentum {}: use 1 or more channels, eps > 0, momentum 0 to 1", channels,
           eps, momentum);
  weight_ = add_parameter("weight", Tensor::full({channels}, 1.0));
  bias_ = add_parameter("bias", Tensor::zeros({channels}));
  mean_ = add_buffer("running_mean", Tensor::zeros({channels}));
  variance_ = add_buffer("running_var", Tensor::full({channels}, 1.0));
}

std::string BatchNorm::describe() const { return fmt::format("{} channels", weight_.dim(0)); }

void BatchNorm::set_momentum(double momentum) {
  FQ_CHECK(momentum >= 0 && momentum <= 1, "batch_norm", "the momentum is {}: use 0 to 1", momentum);
  momentum_ = momentum;
}

Variable BatchNorm::forward(const Variable& x) {
  const bool of_batch = training() && !frozen_;
  // The second run of a checkpointed block must not update the running statistics again.
  if (of_batch && detail::runs_again())
    return ops::batch_norm(x, weight_, bias_, {}, {}, true, momentum_, eps_);
  // ops::batch_norm updates the running statistics in place if it normalizes by the batch.
  return ops::batch_norm(x, weight_, bias_, mean_, variance_, of_batch, momentum_, eps_, in_layer_);
}

void BatchNorm::handle_device_change(Device) {
  // Handles of buffers are invalid after a move.
  mean_ = buffer("running_mean");
  variance_ = buffer("running_var");
}

LayerNorm::LayerNorm(Shape shape, double eps) : eps_(eps) {
  weight_ = add_parameter("weight", Tensor::full(shape, 1.0));
  bias_ = add_parameter("bias", Tensor::zeros(shape));
}

std::string LayerNorm::describe() const { return to_string(weight_.shape()); }

Variable LayerNorm::forward(const Variable& x) {
  return ops::layer_norm(x, weight_, bias_, static_cast<int>(weight_.shape().size()), eps_);
}

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, double eps) : groups_(groups), eps_(eps) {
  FQ_CHECK(groups > 0 && channels > 0 && channels % groups == 0 && eps > 0, "group_norm",
           "{} groups of {} channels, eps {}: use groups that divide the channels and eps > 0", groups,
           channels, eps);
  weight_ = add_parameter("weight", Tensor::full({channels}, 1.0));
  bias_ = add_parameter("bias", Tensor::zeros({channels}));
}

std::string GroupNorm::type() const { return groups_ == weight_.dim(0) ? "instance_norm" : "group_norm"; }

std::string GroupNorm::describe() const {
  return fmt::format("{} groups of {} channels", groups_, weight_.dim(0));
}

Variable GroupNorm::forward(const Variable& x) {
  // One channel per group is instance normalization, an operator of its own.
  return groups_ == weight_.dim(0) ? ops::instance_norm(x, weight_, bias_, eps_)
                                   : ops::group_norm(x, groups_, weight_, bias_, eps_);
}

RmsNorm::RmsNorm(Shape shape, double eps) : eps_(eps) {
  weight_ = add_parameter("weight", Tensor::full(shape, 1.0));
}

std::string RmsNorm::describe() const { return to_string(weight_.shape()); }

Variable RmsNorm::forward(const Variable& x) {
  return ops::rms_norm(x, weight_, static_cast<int>(weight_.shape().size()), eps_);
}

}  // namespace fq
