#include "core/operator_run.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace fq::test {
namespace {

std::string describe_difference(const Tensor& a, const Tensor& b, double tolerance) {
  if (a.defined() != b.defined()) return "only one is defined";
  if (!a.defined()) return {};
  if (a.shape() != b.shape()) return fmt::format("{}, {}", a.describe(), b.describe());
  const auto x = a.to(DType::f64).to_vector<double>(), y = b.to(DType::f64).to_vector<double>();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!(std::fabs(x[i] - y[i]) <= tolerance * std::max(1.0, std::fabs(y[i]))))
      return fmt::format("element {}: {}, {}", i, x[i], y[i]);
  return {};
}

}  // namespace

std::vector<Tensor> make_inputs(const OperatorCase& tested, DType dtype, bool empty) {
  std::vector<Tensor> out;
  for (const auto& input : tested.inputs) {
    Shape shape = input.shape;
    if (empty && input.batched) shape[0] = 0;
    const auto seed = static_cast<unsigned>(out.size() + 1);
    const Tensor values =
        input.distinct ? distinct_values(shape, seed) : random_values(shape, seed, input.low, input.high);
    out.push_back(moved_off(values, input.kinks).to(dtype));
  }
  return out;
}

std::vector<Variable> make_leaves(const OperatorCase& tested, const std::vector<Tensor>& tensors) {
  std::vector<Variable> out;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    out.emplace_back(tensors[i], tested.inputs[i].differentiable);
  return out;
}

std::vector<bool> differentiable_inputs(const OperatorCase& tested) {
  std::vector<bool> out;
  for (const auto& input : tested.inputs) out.push_back(input.differentiable);
  return out;
}

std::vector<Tensor> run_case(const OperatorCase& tested, const std::vector<Tensor>& tensors) {
  const auto variables = make_leaves(tested, tensors);
  const Variable y = tested.apply(variables);
  std::vector<Tensor> out{y.tensor()};
  y.backward(Tensor::full(y.shape(), 1.0, y.tensor().dtype(), y.device()));
  for (const auto& v : variables) out.push_back(v.grad());
  return out;
}

std::string difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double tolerance) {
  if (a.size() != b.size()) return fmt::format("{} and {} tensors", a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    if (const auto found = describe_difference(a[i], b[i], tolerance); !found.empty())
      return fmt::format("tensor {}: {}", i, found);
  return {};
}

}  // namespace fq::test
