#include "fakequant/layers/modules/linear.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/layers/modules/detail/init.h"

namespace fq {

Linear::Linear(std::int64_t in_features, std::int64_t out_features, bool bias) {
  FQ_CHECK(in_features > 0 && out_features > 0, "linear", "{} to {} features: use 1 or more", in_features,
           out_features);
  weight_ = add_parameter("weight", detail::init_uniform({out_features, in_features}, in_features));
  if (bias) bias_ = add_parameter("bias", detail::init_uniform({out_features}, in_features));
}

Linear::Linear(Adopt, const Linear& other) : weight_(other.weight_), bias_(other.bias_) { adopt(other); }

std::string Linear::describe() const {
  return fmt::format("{} -> {}{}", weight_.dim(1), weight_.dim(0), bias_.defined() ? "" : ", no bias");
}

void Linear::ensure_bias() {
  if (!bias_.defined()) bias_ = add_parameter("bias", Tensor::zeros({weight_.dim(0)}));
}

Variable Linear::apply(const Variable& x, const Variable& w) const { return ops::linear(x, w, bias_); }

}  // namespace fq
