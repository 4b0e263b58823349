#include "fakequant/reference/constant.h"

#include "fakequant/core/detail/check.h"

namespace fq {

Constant::Constant(double number) : value_(Tensor::scalar(number, DType::f64)), literal_(true) {}

Constant::Constant(std::initializer_list<Constant> list)
    : Constant(joined(std::vector<Constant>(list.begin(), list.end()))) {}

Constant::Constant(Tensor tensor) : value_(std::move(tensor)) {}

Constant::Constant(const Variable& variable)
    : value_(variable.tensor()), needs_gradient_(variable.requires_grad()) {}

// Items are literals themselves, so nested lists join their row-major values one level at a time.
Constant Constant::joined(const std::vector<Constant>& list) {
  Shape shape{static_cast<std::int64_t>(list.size())};
  std::vector<double> values;
  for (const Constant& item : list) {
    FQ_CHECK(item.literal_, "constant", "a list has elements that are not numbers: use one tensor");
    FQ_CHECK(item.value_.shape() == list[0].value_.shape(), "constant",
             "a list has items of shape {} and of {}: make them the same", to_string(list[0].value_.shape()),
             to_string(item.value_.shape()));
    const auto part = item.value_.to_vector<double>();
    values.insert(values.end(), part.begin(), part.end());
  }
  if (!list.empty()) shape.insert(shape.end(), list[0].value_.shape().begin(), list[0].value_.shape().end());
  Constant out;
  out.value_ = Tensor::from(values, std::move(shape));
  out.literal_ = true;
  return out;
}

Tensor Constant::tensor(std::string_view function, std::string_view what, DType literal) const {
  FQ_CHECK(defined(), function, "the {} is missing: use a number, a list or a tensor", what);
  FQ_CHECK(!needs_gradient_, function,
           "the {} needs a gradient, and codes pass none: detach() it, or train with a fake quantization",
           what);
  return literal_ ? value_.to(literal) : value_;
}

}  // namespace fq
