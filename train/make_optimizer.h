#pragma once

/// Optimizers by name, for options and files.

#include <memory>
#include <string>

#include "fakequant/train/optimizer.h"

namespace fq {

struct OptimizerOptions {
  std::string kind = "adamw";  ///< "sgd", "adam" or "adamw"
  double learning_rate = 1e-3;
  double weight_decay = 0;
  bool decay_all = false;  ///< biases, norms and ranges too; otherwise `decay_weights_only`
  double momentum = 0.9;   ///< of "sgd"
  bool nesterov = false;   ///< of "sgd"
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< of "adam" and "adamw"
};

/// Over all parameters of the model. Throws ArgumentError for an unknown kind, naming the nearest, and as the
/// optimizers do.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Module& model, const OptimizerOptions& options);

}  // namespace fq
