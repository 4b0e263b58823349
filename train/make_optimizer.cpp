#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/optimizer.h"

namespace fq {

std::unique_ptr<Optimizer> make_optimizer(const Module& model, const OptimizerOptions& options) {
  static const std::vector<std::string> kinds{"sgd", "adam", "adamw"};
  FQ_CHECK(std::ranges::find(kinds, options.kind) != kinds.end(), "optimizer", "there is no optimizer '{}'{}",
           options.kind, detail::did_you_mean(options.kind, kinds));
  auto parameters = model.named_parameters();
  const auto rules = options.decay_all ? std::vector<ParameterRule>{} : decay_weights_only(model);
  if (options.kind == "sgd")
    return std::make_unique<Sgd>(
        std::move(parameters),
        SgdOptions{options.learning_rate, options.momentum, options.weight_decay, options.nesterov}, rules);
  const AdamOptions adam{options.learning_rate, options.beta1, options.beta2, options.eps,
                         options.weight_decay};
  if (options.kind == "adam") return std::make_unique<Adam>(std::move(parameters), adam, rules);
  return std::make_unique<AdamW>(std::move(parameters), adam, rules);
}

}  // namespace fq
