#include "fakequant/layers/modules/linear.h"

#include <algorithm>

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

// Folding a batch norm needs a bias.
void Linear::ensure_bias() {
  if (!bias_.defined()) bias_ = add_parameter("bias", Tensor::zeros({weight_.dim(0)}));
}

Variable Linear::apply(const Variable& x, const Variable& w) const { return ops::linear(x, w, bias_); }

Embedding::Embedding(std::int64_t vocabulary, std::int64_t width) {
  FQ_CHECK(vocabulary > 0 && width > 0, "embedding", "a table of {} x {}: use 1 or more", vocabulary, width);
  weight_ = add_parameter("weight", detail::init_uniform({vocabulary, width}, width));
}

Embedding::Embedding(Adopt, const Embedding& other) : weight_(other.weight_) { adopt(other); }

std::string Embedding::describe() const { return fmt::format("{} x {}", weight_.dim(0), weight_.dim(1)); }

Variable Embedding::forward(const Variable& x) { return ops::embedding(x, weight_); }

namespace {

const Variable& checked(const Variable& weight) {
  FQ_CHECK(weight.defined() && weight.rank() == 2, "linear", "the weight is {}: use [out, in]",
           weight.defined() ? to_string(weight.shape()) : "undefined");
  return weight;
}

}  // namespace

TiedLinear::TiedLinear(const Variable& weight, bool bias)
    : Linear(checked(weight).dim(1), weight.dim(0), bias) {
  // Linear's constructor made a weight of its own, which the tied one replaces.
  remove_parameter("weight");
  weight_ = weight;
  add_parameter("weight", weight_);
}

bool is_tied(const Module& model, const Variable& parameter) {
  const auto all = model.named_parameters();
  // named_parameters lists a shared parameter once per name.
  return std::ranges::count(all, parameter.node(), [](const auto& entry) { return entry.second.node(); }) > 1;
}

}  // namespace fq
