#include "core/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "fakequant/core/backend/cpu/memory/host_memory.h"
#include "fakequant/core/device.h"

namespace fq::test {
namespace {

std::vector<Variable> leaves(const std::vector<Tensor>& inputs, const std::vector<bool>& differentiable) {
  std::vector<Variable> out;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    out.emplace_back(inputs[i].defined() ? inputs[i].clone() : Tensor(),
                     static_cast<bool>(differentiable[i]));
  return out;
}

double weighted_sum(const Function& f, const std::vector<Tensor>& inputs,
                    const std::vector<double>& weights) {
  const NoGrad off;
  const auto y =
      f(std::vector<Variable>(inputs.begin(), inputs.end())).tensor().to(DType::f64).to_vector<double>();
  return std::inner_product(y.begin(), y.end(), weights.begin(), 0.0);
}

double numeric(const Function& f, std::vector<Tensor> inputs, std::size_t which, std::size_t element,
               double step, const std::vector<double>& weights) {
  const auto values = inputs[which].to_vector<double>();
  const auto at = [&](double offset) {
    auto changed = values;
    changed[element] += offset;
    inputs[which] =
        Tensor::from(changed, inputs[which].shape()).to(inputs[which].layout()).to(inputs[which].device());
    return weighted_sum(f, inputs, weights);
  };
  return (at(step) - at(-step)) / (2 * step);
}

}  // namespace

std::string check_gradients(const Function& f, const std::vector<Tensor>& inputs,
                            const std::vector<bool>& differentiable, const GradientCheck& options) {
  const Poison poison;
  const auto variables = leaves(inputs, differentiable);
  const Variable y = f(variables);
  const Tensor seed =
      random_values(y.shape(), 77, 0.5, 1.5).to(y.tensor().dtype()).to(y.layout()).to(y.device());
  y.backward(seed);
  const auto weights = seed.to(DType::f64).to_vector<double>();
  const Function& reference = options.surrogate ? options.surrogate : f;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!differentiable[i]) continue;
    if (!variables[i].grad().defined()) return fmt::format("input {} got no gradient", i);
    const auto analytic = variables[i].grad().to(DType::f64).to_vector<double>();
    for (std::size_t e = 0; e < analytic.size(); ++e) {
      const double expected = numeric(reference, inputs, i, e, options.step, weights);
      const double error = std::fabs(analytic[e] - expected) / std::max(1.0, std::fabs(expected));
      if (!(error <= options.tolerance))
        return fmt::format("input {} element {}: gradient {}, central difference {}", i, e, analytic[e],
                           expected);
    }
  }
  return {};
}

Tensor random_values(const Shape& shape, unsigned seed, double low, double high) {
  std::mt19937 generator(seed);
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (auto& v : values) v = low + (high - low) * (generator() * 0x1p-32);
  return Tensor::from(values, shape);
}

Tensor moved_off(const Tensor& tensor, const std::vector<double>& kinks, double margin) {
  auto values = tensor.to_vector<double>();
  for (auto& v : values)
    for (const double kink : kinks)
      if (std::fabs(v - kink) < margin) v = v < kink ? kink - margin : kink + margin;
  return Tensor::from(values, tensor.shape());
}

Tensor distinct_values(const Shape& shape, unsigned seed) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 2.0 * (static_cast<double>(i) + 0.5) / static_cast<double>(values.size()) - 1.0;
  std::mt19937 generator(seed);
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[generator() % i]);
  return Tensor::from(values, shape);
}

Poison::Poison() { cpu::set_poison(true); }
Poison::~Poison() { cpu::set_poison(false); }

}  // namespace fq::test
