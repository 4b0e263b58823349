#include "fakequant/layers/modules/tied_linear.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"

namespace fq {
namespace {

const Variable& checked(const Variable& weight) {
  FQ_CHECK(weight.defined() && weight.rank() == 2, "linear", "the weight is {}: give [out, in]",
           weight.defined() ? to_string(weight.shape()) : "undefined");
  return weight;
}

}  // namespace

TiedLinear::TiedLinear(const Variable& weight, bool bias)
    : Linear(checked(weight).dim(1), weight.dim(0), bias) {
  remove_parameter("weight");
  weight_ = weight;
  add_parameter("weight", weight_);
}

bool is_tied(const Module& model, const Variable& parameter) {
  const auto all = model.named_parameters();
  return std::ranges::count(all, parameter.node(), [](const auto& entry) { return entry.second.node(); }) > 1;
}

}  // namespace fq
