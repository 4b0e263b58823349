#include "fakequant/core/ops/detail/updates.h"

#include <bit>
#include <cmath>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"

namespace fq::ops {
namespace {

/// Requires row-major parameters: kernels process them as plain arrays.
void check_parameter(const Tensor& p, std::string_view op) {
  FQ_CHECK(p.defined(), op, "a parameter is undefined");
  FQ_CHECK((p.dtype() == DType::f32 || p.dtype() == DType::f64) && !p.device().is_meta() &&
               p.layout() == Layout::row_major,
           op, "the parameter is {}: use row-major f32 or f64 on the cpu or a GPU", p.describe());
}

void check_matching(const Tensor& p, const Tensor& other, std::string_view what, std::string_view op) {
  FQ_CHECK(other.defined() && other.shape() == p.shape() && other.dtype() == p.dtype() &&
               other.device() == p.device(),
           op, "the {} is {}, the parameter {}: both need the same shape, dtype and device", what,
           other.defined() ? other.describe() : "undefined", p.describe());
}

void check_device(const Tensor& p, const Tensor& first, std::string_view op) {
  FQ_CHECK(p.device() == first.device(), op, "a parameter is {}, another {}: use one device for all",
           p.describe(), first.describe());
}

/// Returns the kernels for parameters of type T. A list may have parameters of both types, and each type is
/// one call.
template <class T>
const detail::UpdateKernels<T>& update_kernels(Device device) {
  const auto& kernels = detail::Kernels::of(device);
  if constexpr (std::is_same_v<T, float>) return kernels.update_f32;
  if constexpr (std::is_same_v<T, double>) return kernels.update_f64;
}

template <class T>
T* elements(Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_raw()) : nullptr;
}
template <class T>
const T* elements(const Tensor& tensor) {
  return static_cast<const T*>(tensor.raw());
}

/// Returns the gradients in the element order of the parameters. Keeps converted ones alive.
std::vector<Tensor> row_major_gradients(const auto& updates) {
  std::vector<Tensor> out;
  out.reserve(updates.size());
  for (const auto& u : updates) out.push_back(u.gradient.to(Layout::row_major));
  return out;
}

template <class T>
void run_sgd(std::span<const SgdUpdate> updates, const SgdStep& step) {
  const auto gradients = row_major_gradients(updates);
  std::vector<detail::SgdArrays<T>> arrays;
  arrays.reserve(updates.size());
  for (std::size_t i = 0; i < updates.size(); ++i) {
    if (updates[i].parameter.dtype() != cpp_dtype<T>) continue;
    // Copies of handles: the kernels write through them into the caller's tensors.
    SgdUpdate u = updates[i];
    arrays.push_back({u.parameter.numel(), elements<T>(u.parameter), elements<T>(gradients[i]),
                      elements<T>(u.momentum), static_cast<T>(u.learning_rate),
                      static_cast<T>(u.weight_decay)});
  }
  if (arrays.empty()) return;
  const Device device = updates[0].parameter.device();
  const detail::SgdFactors<T> factors{static_cast<T>(step.momentum), static_cast<T>(step.gradient_scale),
                                      step.nesterov};
  update_kernels<T>(device).sgd(arrays, factors, device);
}

template <class T>
detail::AdamArrays<T> adam_arrays(AdamUpdate u, const Tensor& gradient, const AdamStep& step) {
  const auto t = static_cast<double>(u.step);
  // Constants are computed in f64 and rounded once: 1 - beta^t would lose digits in f32.
  const double decay = u.weight_decay, rate = u.learning_rate;
  return {.n = u.parameter.numel(),
          .parameter = elements<T>(u.parameter),
          .gradient = elements<T>(gradient),
          .mean = elements<T>(u.mean),
          .square = elements<T>(u.square),
          // The bias corrections are two factors per step, so that the kernel computes no power per element.
          // Decoupled decay (AdamW) is the factor `keep` of the parameter.
          .rate = static_cast<T>(rate / (1 - std::pow(step.beta1, t))),
          .root = static_cast<T>(1 / std::sqrt(1 - std::pow(step.beta2, t))),
          .weight_decay = static_cast<T>(step.decoupled ? 0 : decay),
          .keep = static_cast<T>(step.decoupled ? 1 - rate * decay : 1)};
}

template <class T>
void run_adam(std::span<const AdamUpdate> updates, const AdamStep& step) {
  const auto gradients = row_major_gradients(updates);
  std::vector<detail::AdamArrays<T>> arrays;
  arrays.reserve(updates.size());
  for (std::size_t i = 0; i < updates.size(); ++i)
    if (updates[i].parameter.dtype() == cpp_dtype<T>)
      arrays.push_back(adam_arrays<T>(updates[i], gradients[i], step));
  if (arrays.empty()) return;
  const Device device = updates[0].parameter.device();
  const detail::AdamFactors<T> factors{.beta1 = static_cast<T>(step.beta1),
                                       .rest1 = static_cast<T>(1 - step.beta1),
                                       .beta2 = static_cast<T>(step.beta2),
                                       .rest2 = static_cast<T>(1 - step.beta2),
                                       .eps = static_cast<T>(step.eps),
                                       .scale = static_cast<T>(step.gradient_scale)};
  update_kernels<T>(device).adam(arrays, factors, device);
}

/// Converts the f64 fields to the target type, each rounded once.
template <class T, class To, class From, std::size_t... I>
To rounded(const From& from, std::index_sequence<I...>) {
  // A rule consists of numbers only, so a cast to an array converts the fields of any rule.
  const auto numbers = std::bit_cast<std::array<double, sizeof...(I)>>(from);
  return std::bit_cast<To>(std::array<T, sizeof...(I)>{static_cast<T>(numbers[I])...});
}

template <class T, template <class> class Rule>
void run_rules(std::span<const RuleUpdate<Rule>> updates, double scale) {
  const auto gradients = row_major_gradients(updates);
  std::vector<detail::RuleArrays<T, Rule<T>>> arrays;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    if (updates[i].parameter.dtype() != cpp_dtype<T>) continue;
    RuleUpdate<Rule> u = updates[i];
    const auto count = std::make_index_sequence<sizeof(Rule<double>) / sizeof(double)>();
    arrays.push_back({u.parameter.numel(),
                      elements<T>(u.parameter),
                      elements<T>(gradients[i]),
                      {elements<T>(u.state[0]), elements<T>(u.state[1]), elements<T>(u.state[2])},
                      static_cast<T>(scale),
                      static_cast<T>(u.keep),
                      static_cast<T>(u.weight_decay),
                      rounded<T, Rule<T>>(u.rule, count)});
  }
  if (arrays.empty()) return;
  const Device device = updates[0].parameter.device();
  update_kernels<T>(device).rule(detail::RuleList<T, Rule<T>>(arrays), device);
}

void check_pairs(std::span<const Tensor> a, std::span<const Tensor> b, std::string_view op) {
  FQ_CHECK(a.size() == b.size(), op, "the lists have {} and {} tensors: use lists of equal length", a.size(),
           b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    check_parameter(a[i], op);
    check_matching(a[i], b[i], "other tensor", op);
    check_parameter(b[i], op);
    check_device(a[i], a[0], op);
  }
}

template <class T>
void run_move_towards(std::span<Tensor> averages, std::span<const Tensor> values, double rate) {
  std::vector<detail::PairArrays<T>> arrays;
  arrays.reserve(averages.size());
  for (std::size_t i = 0; i < averages.size(); ++i)
    if (averages[i].dtype() == cpp_dtype<T>)
      arrays.push_back({averages[i].numel(), elements<T>(averages[i]), elements<T>(values[i])});
  if (arrays.empty()) return;
  const Device device = averages[0].device();
  const T by = static_cast<T>(rate);
  update_kernels<T>(device).move_towards(arrays, by, device);
}

}  // namespace

void sgd_step(std::span<const SgdUpdate> updates, const SgdStep& step) {
  constexpr std::string_view op = "sgd_step";
  for (const auto& u : updates) {
    check_parameter(u.parameter, op);
    check_device(u.parameter, updates[0].parameter, op);
    check_matching(u.parameter, u.gradient, "gradient", op);
    if (step.momentum != 0 || u.momentum.defined()) check_matching(u.parameter, u.momentum, "momentum", op);
  }
  // Parameters of f32 and f64 may be mixed in one list.
  run_sgd<float>(updates, step);
  run_sgd<double>(updates, step);
}

void adam_step(std::span<const AdamUpdate> updates, const AdamStep& step) {
  constexpr std::string_view op = "adam_step";
  for (const auto& u : updates) {
    check_parameter(u.parameter, op);
    check_device(u.parameter, updates[0].parameter, op);
    check_matching(u.parameter, u.gradient, "gradient", op);
    check_matching(u.parameter, u.mean, "mean", op);
    check_matching(u.parameter, u.square, "mean square", op);
    FQ_CHECK(u.step >= 1, op, "the step is {}: count from 1", u.step);
  }
  run_adam<float>(updates, step);
  run_adam<double>(updates, step);
}

template <template <class> class Rule>
void rule_step(std::span<const RuleUpdate<Rule>> updates, double gradient_scale) {
  constexpr std::string_view op = "optimizer_step";
  for (const auto& u : updates) {
    check_parameter(u.parameter, op);
    check_device(u.parameter, updates[0].parameter, op);
    check_matching(u.parameter, u.gradient, "gradient", op);
    for (const auto& state : u.state)
      if (state.defined()) check_matching(u.parameter, state, "state", op);
  }
  run_rules<float>(updates, gradient_scale);
  run_rules<double>(updates, gradient_scale);
}
template void rule_step(std::span<const RuleUpdate<detail::DampenedSgd>>, double);
template void rule_step(std::span<const RuleUpdate<detail::RmsProp>>, double);
template void rule_step(std::span<const RuleUpdate<detail::Adagrad>>, double);
template void rule_step(std::span<const RuleUpdate<detail::NAdam>>, double);
template void rule_step(std::span<const RuleUpdate<detail::AmsGrad>>, double);
template void rule_step(std::span<const RuleUpdate<detail::Lion>>, double);
template void rule_step(std::span<const RuleUpdate<detail::LambDirection>>, double);
template void rule_step(std::span<const RuleUpdate<detail::Descent>>, double);

void move_towards(std::span<Tensor> averages, std::span<const Tensor> values, double rate) {
  check_pairs(averages, values, "move_towards");
  run_move_towards<float>(averages, values, rate);
  run_move_towards<double>(averages, values, rate);
}

void swap_contents(std::span<Tensor> a, std::span<Tensor> b) {
  check_pairs(a, b, "swap_contents");
  std::vector<detail::SwapArrays> arrays;
  arrays.reserve(a.size());
  // 32-bit words: f64 elements are two words each.
  for (std::size_t i = 0; i < a.size(); ++i)
    arrays.push_back({a[i].nbytes() / 4, elements<std::uint32_t>(a[i]), elements<std::uint32_t>(b[i])});
  if (arrays.empty()) return;
  const Device device = a[0].device();
  detail::run(device, &detail::Kernels::swap_contents, arrays, device);
}

// One kernel call for all tensors: on a GPU each call would wait.
double norm(std::span<const Tensor> tensors) {
  std::vector<Tensor> given;
  for (const auto& t : tensors) {
    if (!t.defined()) continue;
    FQ_CHECK(t.dtype() == DType::f32 || t.dtype() == DType::f64, "norm", "a tensor is {}: use f32 or f64",
             t.describe());
    given.push_back(t);
    check_device(t, given[0], "norm");
  }
  if (given.empty()) return 0;
  const Device device = given[0].device();
  return std::sqrt(detail::run(device, &detail::Kernels::sum_of_squares, given, device));
}

}  // namespace fq::ops
