#include "fakequant/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/ops/detail/updates.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/detail/whole_number.h"

namespace fq {
namespace {

bool usable(double value) { return std::isfinite(value) && value >= 0; }

// Identity is the tape node, not the name: tied weights have two names and must get one update per step.
NamedParameters unique_parameters(const NamedParameters& parameters) {
  NamedParameters out;
  for (const auto& [name, value] : parameters) {
    FQ_CHECK(value.defined(), "optimizer", "the parameter '{}' is undefined", name);
    if (std::ranges::none_of(
            out, [node = value.node()](const auto& known) { return known.second.node() == node; }))
      out.emplace_back(name, value);
  }
  return out;
}

void check_rule(const ParameterRule& rule) {
  FQ_CHECK(usable(rule.weight_decay.value_or(0)) && usable(rule.learning_rate_factor.value_or(0)),
           "optimizer",
           "the rule for '{}' has a weight decay of {} and a learning rate factor of {}: use 0 or more",
           rule.pattern, rule.weight_decay.value_or(0), rule.learning_rate_factor.value_or(1));
}

using Rules = std::vector<ParameterRule>;
using Made = std::unique_ptr<Optimizer>;
using Make = Made (*)(NamedParameters parameters, const OptimizerOptions& o, const Rules& rules);

// Each factory takes the fields of OptimizerOptions that its optimizer has.
Made sgd(NamedParameters parameters, const OptimizerOptions& o, const Rules& rules) {
  const SgdOptions options{o.learning_rate, o.momentum.value_or(0.9), o.weight_decay, o.nesterov,
                           o.dampening};
  return std::make_unique<Sgd>(std::move(parameters), options, rules);
}

template <class T>
Made adam(NamedParameters parameters, const OptimizerOptions& o, const Rules& rules) {
  const AdamOptions options{o.learning_rate,      o.beta1,        o.beta2.value_or(0.999),
                            o.eps.value_or(1e-8), o.weight_decay, o.amsgrad};
  return std::make_unique<T>(std::move(parameters), options, rules);
}

Made rmsprop(NamedParameters parameters, const OptimizerOptions& o, const Rules& rules) {
  const RmsPropOptions options{o.learning_rate,        o.alpha,    o.eps.value_or(1e-8),
                               o.momentum.value_or(0), o.centered, o.weight_decay};
  return std::make_unique<RmsProp>(std::move(parameters), options, rules);
}

Made adagrad(NamedParameters parameters, const OptimizerOptions& o, const Rules& rules) {
  const AdagradOptions options{o.learning_rate, o.rate_decay, o.eps.value_or(1e-10), o.weight_decay};
  return std::make_unique<Adagrad>(std::move(parameters), options, rules);
}

Made nadam(NamedParameters parameters, const OptimizerOptions& o, const Rules& rules) {
  NAdamOptions options;
  options.learning_rate = o.learning_rate;
  options.beta1 = o.beta1;
  options.beta2 = o.beta2.value_or(options.beta2);
  options.eps = o.eps.value_or(options.eps);
  options.weight_decay = o.weight_decay;
  return std::make_unique<NAdam>(std::move(parameters), options, rules);
}

Made lion(NamedParameters parameters, const OptimizerOptions& o, const Rules& rules) {
  const LionOptions options{o.learning_rate, o.beta1, o.beta2.value_or(0.99), o.weight_decay};
  return std::make_unique<Lion>(std::move(parameters), options, rules);
}

Made lamb(NamedParameters parameters, const OptimizerOptions& o, const Rules& rules) {
  const LambOptions options{o.learning_rate, o.beta1, o.beta2.value_or(0.999), o.eps.value_or(1e-6),
                            o.weight_decay};
  return std::make_unique<Lamb>(std::move(parameters), options, rules);
}

// Fields of OptimizerOptions without a value have the default of the optimizer: it differs between kinds.
const std::map<std::string, Make>& known_optimizers() {
  static const std::map<std::string, Make> all{
      {"sgd", sgd},         {"adam", adam<Adam>}, {"adamw", adam<AdamW>}, {"rmsprop", rmsprop},
      {"adagrad", adagrad}, {"nadam", nadam},     {"lion", lion},         {"lamb", lamb}};
  return all;
}

}  // namespace

// Ranges of shape [channels, 1, ..] have more than one axis, so that their name decides.
std::vector<ParameterRule> decay_weights_only(const Module& model) {
  std::vector<ParameterRule> rules;
  for (const auto& [name, value] : model.named_parameters())
    if (value.rank() <= 1 || name.ends_with("amax")) rules.push_back({name, 0.0, std::nullopt});
  return rules;
}

Optimizer::Optimizer(NamedParameters parameters, double learning_rate, double weight_decay,
                     const std::vector<ParameterRule>& rules, std::vector<std::string> state_names)
    : parameters_(unique_parameters(parameters)), state_names_(std::move(state_names)) {
  FQ_CHECK(usable(weight_decay), "optimizer", "the weight decay is {}: use 0 or more", weight_decay);
  std::ranges::for_each(rules, check_rule);
  set_learning_rate(learning_rate);
  for (const auto& [name, value] : parameters_) {
    Item item{.weight_decay = weight_decay, .learning_rate_factor = 1, .steps = 0, .state = {}};
    // Later rules replace fields of earlier ones, so that user rules come after decay_weights_only.
    for (const auto& rule : rules) {
      if (!detail::wildcard_match(rule.pattern, name)) continue;
      item.weight_decay = rule.weight_decay.value_or(item.weight_decay);
      item.learning_rate_factor = rule.learning_rate_factor.value_or(item.learning_rate_factor);
    }
    // States have the parameter's dtype and device, so that a step is elementwise on one device.
    const Tensor p = value.tensor();
    for (std::size_t i = 0; i < state_names_.size(); ++i)
      item.state.push_back(Tensor::zeros(p.shape(), p.dtype(), p.device()));
    items_.push_back(std::move(item));
  }
}

void Optimizer::set_learning_rate(double learning_rate) {
  FQ_CHECK(usable(learning_rate), "optimizer", "the learning rate is {}: use 0 or more", learning_rate);
  learning_rate_ = learning_rate;
}

void Optimizer::step(double gradient_scale) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    // A parameter without a gradient keeps its step count: bias corrections count its own updates only.
    if (!parameters_[i].second.grad().defined()) continue;
    ++items_[i].steps;
    indices.push_back(i);
  }
  // One call for all parameters: on a GPU one launch serves many small tensors.
  update(indices, gradient_scale);
}

void Optimizer::zero_grad() {
  for (auto& [name, value] : parameters_) value.zero_grad();
}

StateDict Optimizer::state_dict() const {
  StateDict out;
  auto steps = nlohmann::json::array();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    for (std::size_t s = 0; s < state_names_.size(); ++s)
      out.set(parameters_[i].first + "/" + state_names_[s], items_[i].state[s]);
    steps.push_back(items_[i].steps);
  }
  out.set_attribute("type", std::string(type()));
  out.set_attribute("steps", std::move(steps));
  return out;
}

void Optimizer::load_state(const StateDict& state) {
  const auto& saved = state.attribute("type");
  FQ_CHECK(saved == std::string(type()), "optimizer",
           "the state belongs to {}, the optimizer is {}: use the same kind", saved.dump(), type());
  const auto& steps = state.attribute("steps");
  FQ_CHECK(steps.is_array() && steps.size() == parameters_.size() &&
               state.size() == parameters_.size() * state_names_.size(),
           "optimizer", "the state has {} parameters, the optimizer {}", steps.size(), parameters_.size());
  // All checks come before the first write, so that a state that does not fit changes nothing.
  for (const auto& s : steps) (void)detail::whole_number(s, "steps", "optimizer");
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (std::size_t s = 0; s < state_names_.size(); ++s)
      (void)state.at(parameters_[i].first + "/" + state_names_[s], items_[i].state[s].shape(),
                     items_[i].state[s].dtype());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    items_[i].steps = detail::whole_number(steps[i], "steps", "optimizer");
    for (std::size_t s = 0; s < state_names_.size(); ++s)
      items_[i].state[s].copy_from(state.at(parameters_[i].first + "/" + state_names_[s]));
  }
}

Sgd::Sgd(NamedParameters parameters, SgdOptions options, const std::vector<ParameterRule>& rules)
    : Optimizer(std::move(parameters), options.learning_rate, options.weight_decay, rules,
                options.momentum != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{}),
      options_(options) {
  FQ_CHECK(usable(options.momentum) && options.momentum < 1, "sgd", "momentum is {}: use 0 to less than 1",
           options.momentum);
  FQ_CHECK(!options.nesterov || options.momentum > 0, "sgd", "Nesterov's momentum needs a momentum above 0");
  FQ_CHECK(options.dampening >= 0 && options.dampening <= 1 &&
               (options.dampening == 0 || (options.momentum > 0 && !options.nesterov)),
           "sgd", "dampening is {}: use 0 to 1, and 0 without momentum and with Nesterov's",
           options.dampening);
}

Sgd::~Sgd() = default;

// Dampening is rare, so that the fused kernel of sgd_step does not have it.
void Sgd::update_dampened(const std::vector<std::size_t>& indices, double gradient_scale) {
  std::vector<ops::RuleUpdate<detail::DampenedSgd>> updates;
  for (const auto i : indices) {
    const Variable& p = parameters()[i].second;
    // torch.optim.SGD sets the momentum to the first gradient, without dampening.
    const double rest = item(i).steps == 1 ? 1 : 1 - options_.dampening;
    updates.push_back({p.tensor(),
                       p.grad(),
                       {item(i).state[0]},
                       1,
                       item(i).weight_decay,
                       {parameter_rate(i), options_.momentum, rest, 0}});
  }
  ops::rule_step<detail::DampenedSgd>(updates, gradient_scale);
}

void Sgd::update(const std::vector<std::size_t>& indices, double gradient_scale) {
  if (options_.dampening != 0) return update_dampened(indices, gradient_scale);
  updates_.clear();
  for (const auto i : indices) {
    const Variable& p = parameters()[i].second;
    // Without momentum there is no state tensor.
    updates_.push_back({p.tensor(), p.grad(), item(i).state.empty() ? Tensor{} : item(i).state[0],
                        parameter_rate(i), item(i).weight_decay});
  }
  ops::sgd_step(updates_, {options_.momentum, options_.nesterov, gradient_scale});
  // The list keeps its capacity for the next step, but must not keep tensors alive.
  updates_.clear();
}

Adam::Adam(NamedParameters parameters, AdamOptions options, const std::vector<ParameterRule>& rules)
    : Adam(std::move(parameters), options, rules, false) {}

Adam::Adam(NamedParameters parameters, AdamOptions options, const std::vector<ParameterRule>& rules,
           bool decoupled)
    : Optimizer(std::move(parameters), options.learning_rate, options.weight_decay, rules,
                options.amsgrad ? std::vector<std::string>{"mean", "square", "largest"}
                                : std::vector<std::string>{"mean", "square"}),
      options_(options),
      decoupled_(decoupled) {
  FQ_CHECK(usable(options.beta1) && options.beta1 < 1 && usable(options.beta2) && options.beta2 < 1, "adam",
           "beta1 is {} and beta2 {}: use 0 to less than 1", options.beta1, options.beta2);
  FQ_CHECK(usable(options.eps), "adam", "eps is {}: use 0 or more", options.eps);
}

Adam::~Adam() = default;

// As in torch.optim.Adam, "largest" is the maximum of v before its bias correction.
void Adam::update_amsgrad(const std::vector<std::size_t>& indices, double gradient_scale) {
  std::vector<ops::RuleUpdate<detail::AmsGrad>> updates;
  const auto& o = options_;
  for (const auto i : indices) {
    const Variable& p = parameters()[i].second;
    const auto& state = item(i).state;
    const auto t = static_cast<double>(item(i).steps);
    const double rate = parameter_rate(i), decay = item(i).weight_decay;
    updates.push_back({p.tensor(),
                       p.grad(),
                       {state[0], state[1], state[2]},
                       decoupled_ ? 1 - rate * decay : 1,
                       decoupled_ ? 0 : decay,
                       // 1 - beta and the corrections are computed in f64, as in PyTorch, and rounded once to
                       // the parameter's type.
                       {{o.beta1, 1 - o.beta1, o.beta2, 1 - o.beta2},
                        rate / (1 - std::pow(o.beta1, t)),
                        1 / std::sqrt(1 - std::pow(o.beta2, t)),
                        o.eps}});
  }
  ops::rule_step<detail::AmsGrad>(updates, gradient_scale);
}

void Adam::update(const std::vector<std::size_t>& indices, double gradient_scale) {
  if (options_.amsgrad) return update_amsgrad(indices, gradient_scale);
  updates_.clear();
  for (const auto i : indices) {
    const Variable& p = parameters()[i].second;
    updates_.push_back({p.tensor(), p.grad(), item(i).state[0], item(i).state[1], item(i).steps,
                        parameter_rate(i), item(i).weight_decay});
  }
  ops::adam_step(updates_, {options_.beta1, options_.beta2, options_.eps, decoupled_, gradient_scale});
  updates_.clear();
}

double gradient_norm(const std::vector<Variable>& parameters) {
  std::vector<Tensor> gradients;
  // One norm over all tensors, as torch.nn.utils.clip_grad_norm_.
  gradients.reserve(parameters.size());
  for (const auto& p : parameters) gradients.push_back(p.grad());
  return ops::norm(gradients);
}

double clip_factor(double norm, double max_norm) {
  FQ_CHECK(max_norm >= 0, "clip", "the largest norm is {}: use 0 (no clipping) or more", max_norm);
  if (max_norm == 0) return 1;
  if (!std::isfinite(norm))
    throw NumericError(
        fmt::format("[clip] the norm of the gradients is {}: use a smaller learning rate", norm));
  return norm > max_norm ? max_norm / norm : 1;
}

const std::vector<std::string>& optimizer_kinds() {
  static const std::vector<std::string> names{"sgd",     "adam",  "adamw", "rmsprop",
                                              "adagrad", "nadam", "lion",  "lamb"};
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(const Module& model, const OptimizerOptions& options) {
  return make_optimizer(model, options, model.named_parameters());
}

std::unique_ptr<Optimizer> make_optimizer(const Module& model, const OptimizerOptions& options,
                                          const NamedParameters& parameters) {
  const auto found = known_optimizers().find(options.kind);
  FQ_CHECK(found != known_optimizers().end(), "optimizer", "there is no optimizer '{}'{}", options.kind,
           detail::did_you_mean(options.kind, optimizer_kinds()));
  auto rules = options.decay_all ? Rules{} : decay_weights_only(model);
  rules.insert(rules.end(), options.rules.begin(), options.rules.end());
  return found->second(parameters, options, rules);
}

}  // namespace fq
