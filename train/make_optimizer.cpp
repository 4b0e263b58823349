#include <map>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/adaptive_optimizers.h"

namespace fq {
namespace {

using Rules = std::vector<ParameterRule>;
using Made = std::unique_ptr<Optimizer>;
using Make = Made (*)(NamedParameters parameters, const OptimizerOptions& o, const Rules& rules);

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

const std::map<std::string, Make>& known_optimizers() {
  static const std::map<std::string, Make> all{
      {"sgd", sgd},         {"adam", adam<Adam>}, {"adamw", adam<AdamW>}, {"rmsprop", rmsprop},
      {"adagrad", adagrad}, {"nadam", nadam},     {"lion", lion},         {"lamb", lamb}};
  return all;
}

}  // namespace

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
