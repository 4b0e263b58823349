#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/detail/updates.h"
#include "fakequant/train/optimizer.h"

namespace fq {
namespace {

bool usable(double value) { return std::isfinite(value) && value >= 0; }
bool is_below_one(double value) { return usable(value) && value < 1; }

void check_betas(double beta1, double beta2, double eps, std::string_view type) {
  FQ_CHECK(is_below_one(beta1) && is_below_one(beta2), type, "beta1 is {} and beta2 {}: use 0 to less than 1",
           beta1, beta2);
  FQ_CHECK(usable(eps), type, "eps is {}: use 0 or more", eps);
}

// Names of the state tensors. RmsProp::update relies on the order: "momentum" is the last one.
std::vector<std::string> rms_states(const RmsPropOptions& o) {
  std::vector<std::string> names{"square"};
  if (o.centered) names.emplace_back("mean");
  if (o.momentum != 0) names.emplace_back("momentum");
  return names;
}

detail::Moments<double> moments(double beta1, double beta2) { return {beta1, 1 - beta1, beta2, 1 - beta2}; }

// Returns 1 / sqrt(1 - beta2^t), the factor of sqrt(v).
double bias_correction(double beta2, std::int64_t t) {
  return 1 / std::sqrt(1 - std::pow(beta2, static_cast<double>(t)));
}

}  // namespace

RmsProp::RmsProp(NamedParameters parameters, RmsPropOptions options, const std::vector<ParameterRule>& rules)
    : Optimizer(std::move(parameters), options.learning_rate, options.weight_decay, rules,
                rms_states(options)),
      options_(options) {
  FQ_CHECK(is_below_one(options.alpha) && is_below_one(options.momentum), "rmsprop",
           "alpha is {} and momentum {}: use 0 to less than 1", options.alpha, options.momentum);
  FQ_CHECK(usable(options.eps), "rmsprop", "eps is {}: use 0 or more", options.eps);
}

void RmsProp::update(const std::vector<std::size_t>& indices, double gradient_scale) {
  std::vector<ops::RuleUpdate<detail::RmsProp>> updates;
  for (const auto i : indices) {
    const auto& state = item(i).state;
    const Variable& p = parameters()[i].second;
    updates.push_back({p.tensor(),
                       p.grad(),
                       {state[0], options_.centered ? state[1] : Tensor(),
                        options_.momentum != 0 ? state.back() : Tensor()},
                       1,
                       item(i).weight_decay,
                       {parameter_rate(i), options_.alpha, 1 - options_.alpha, options_.eps,
                        options_.momentum, options_.centered ? 1.0 : 0.0}});
  }
  ops::rule_step<detail::RmsProp>(updates, gradient_scale);
}

Adagrad::Adagrad(NamedParameters parameters, AdagradOptions options, const std::vector<ParameterRule>& rules)
    : Optimizer(std::move(parameters), options.learning_rate, options.weight_decay, rules, {"sum"}),
      options_(options) {
  FQ_CHECK(usable(options.rate_decay) && usable(options.eps), "adagrad",
           "rate_decay is {} and eps {}: use 0 or more", options.rate_decay, options.eps);
}

void Adagrad::update(const std::vector<std::size_t>& indices, double gradient_scale) {
  std::vector<ops::RuleUpdate<detail::Adagrad>> updates;
  for (const auto i : indices) {
    const Variable& p = parameters()[i].second;
    // The first step (t = 1) has the full learning rate, as in torch.optim.Adagrad.
    const double decay = 1 + static_cast<double>(item(i).steps - 1) * options_.rate_decay;
    updates.push_back({p.tensor(),
                       p.grad(),
                       {item(i).state[0]},
                       1,
                       item(i).weight_decay,
                       {parameter_rate(i) / decay, options_.eps}});
  }
  ops::rule_step<detail::Adagrad>(updates, gradient_scale);
}

NAdam::NAdam(NamedParameters parameters, NAdamOptions options, const std::vector<ParameterRule>& rules)
    : Optimizer(std::move(parameters), options.learning_rate, options.weight_decay, rules,
                {"mean", "square"}),
      options_(options),
      products_{1.0} {
  check_betas(options.beta1, options.beta2, options.eps, "nadam");
  FQ_CHECK(usable(options.momentum_decay), "nadam", "momentum_decay is {}: use 0 or more",
           options.momentum_decay);
}

// mu_t of Dozat 2016; 0.96 is the constant of the paper and of torch.optim.NAdam.
double NAdam::momentum(std::int64_t t) const {
  return options_.beta1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(t) * options_.momentum_decay));
}

// Parameters can have different step counts, so that all products up to the largest t are cached. They depend
// only on t: a resumed run computes them again.
double NAdam::product(std::int64_t t) {
  while (static_cast<std::int64_t>(products_.size()) <= t)
    products_.push_back(products_.back() * momentum(static_cast<std::int64_t>(products_.size())));
  return products_[static_cast<std::size_t>(t)];
}

void NAdam::update(const std::vector<std::size_t>& indices, double gradient_scale) {
  std::vector<ops::RuleUpdate<detail::NAdam>> updates;
  for (const auto i : indices) {
    const Variable& p = parameters()[i].second;
    const auto t = item(i).steps;
    const double rate = parameter_rate(i), decay = item(i).weight_decay;
    updates.push_back(
        {p.tensor(),
         p.grad(),
         {item(i).state[0], item(i).state[1]},
         options_.decoupled ? 1 - rate * decay : 1,
         options_.decoupled ? 0 : decay,
         {moments(options_.beta1, options_.beta2), rate * (1 - momentum(t)) / (1 - product(t)),
          rate * momentum(t + 1) / (1 - product(t + 1)), bias_correction(options_.beta2, t), options_.eps}});
  }
  ops::rule_step<detail::NAdam>(updates, gradient_scale);
}

Lion::Lion(NamedParameters parameters, LionOptions options, const std::vector<ParameterRule>& rules)
    : Optimizer(std::move(parameters), options.learning_rate, options.weight_decay, rules, {"mean"}),
      options_(options) {
  check_betas(options.beta1, options.beta2, 0, "lion");
}

void Lion::update(const std::vector<std::size_t>& indices, double gradient_scale) {
  std::vector<ops::RuleUpdate<detail::Lion>> updates;
  for (const auto i : indices) {
    const Variable& p = parameters()[i].second;
    const double rate = parameter_rate(i);
    updates.push_back({p.tensor(),
                       p.grad(),
                       {item(i).state[0]},
                       // Decay is always decoupled: the sign of the update would hide a decay term in the
                       // gradient.
                       1 - rate * item(i).weight_decay,
                       0,
                       {rate, options_.beta1, 1 - options_.beta1, options_.beta2, 1 - options_.beta2}});
  }
  ops::rule_step<detail::Lion>(updates, gradient_scale);
}

Lamb::Lamb(NamedParameters parameters, LambOptions options, const std::vector<ParameterRule>& rules)
    : Optimizer(std::move(parameters), options.learning_rate, options.weight_decay, rules,
                {"mean", "square"}),
      options_(options) {
  check_betas(options.beta1, options.beta2, options.eps, "lamb");
}

// The trust ratio |p| / |r| requires the whole direction r. Hence two passes: directions of all parameters,
// then norms and steps.
void Lamb::update(const std::vector<std::size_t>& indices, double gradient_scale) {
  std::vector<ops::RuleUpdate<detail::LambDirection>> directions;
  std::vector<ops::RuleUpdate<detail::Descent>> steps;
  for (const auto i : indices) {
    const Variable& p = parameters()[i].second;
    const Tensor direction = Tensor::zeros(p.shape(), p.tensor().dtype(), p.device());
    const auto t = item(i).steps;
    directions.push_back(
        {p.tensor(),
         p.grad(),
         {item(i).state[0], item(i).state[1], direction},
         1,
         0,
         {moments(options_.beta1, options_.beta2), 1 / (1 - std::pow(options_.beta1, static_cast<double>(t))),
          bias_correction(options_.beta2, t), options_.eps, item(i).weight_decay}});
  }
  ops::rule_step<detail::LambDirection>(directions, gradient_scale);
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const Tensor &p = directions[k].parameter, &direction = directions[k].state[2];
    // Reading the norms on the host waits for a GPU.
    const double of_p = ops::norm(std::span(&p, 1)), of_direction = ops::norm(std::span(&direction, 1));
    const double trust = of_p > 0 && of_direction > 0 ? of_p / of_direction : 1;
    steps.push_back({p, directions[k].gradient, {direction}, 1, 0, {parameter_rate(indices[k]) * trust}});
  }
  ops::rule_step<detail::Descent>(steps);
}

}  // namespace fq
