#pragma once

/// Parameter updates of the optimizers: one call updates a whole list of parameters. The functions write
/// their tensors in place (which bumps versions), record nothing and are elementwise: results do not depend
/// on the thread count.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fakequant/core/numerics/detail/update_rules.h"
#include "fakequant/core/tensor.h"

namespace fq::ops {

/// One parameter of an SGD step. Tensors are handles: the parameter and its state are written.
struct SgdUpdate {
  Tensor parameter;  ///< f32 or f64, row-major
  Tensor gradient;   ///< same shape and dtype, any layout; not written
  Tensor momentum;   ///< moving sum of gradients, initially zeros; undefined without momentum
  double learning_rate = 0;
  double weight_decay = 0;
};

struct SgdStep {
  double momentum = 0;
  bool nesterov = false;
  double gradient_scale = 1;  ///< factor of every gradient, applied first: clipping, accumulation
};

/// Updates g = gradient_scale * gradient + weight_decay * p; m = momentum * m + g; p -= learning_rate * d,
/// where d is g without momentum, g + momentum * m with Nesterov momentum, else m (torch.optim.SGD, no
/// dampening). Throws ArgumentError for other dtypes, devices, layouts or shapes.
void sgd_step(std::span<const SgdUpdate> updates, const SgdStep& step);

/// One parameter of an Adam step.
struct AdamUpdate {
  Tensor parameter;  ///< f32 or f64, row-major
  Tensor gradient;   ///< same shape and dtype, any layout; not written
  Tensor mean;       ///< moving mean of gradients, initially zeros
  Tensor square;     ///< moving mean of squared gradients, initially zeros
  /// Step number of this parameter, from 1, for the bias correction of the moving means.
  std::int64_t step = 1;
  double learning_rate = 0;
  double weight_decay = 0;
};

struct AdamStep {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  /// AdamW: p *= 1 - learning_rate * weight_decay, instead of adding the decay to the gradient.
  bool decoupled = false;
  double gradient_scale = 1;  ///< factor of every gradient, applied first
};

/// Updates m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2;
/// p -= learning_rate / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
/// (Kingma and Ba 2015; decoupled decay by Loshchilov and Hutter 2019; torch.optim.Adam and AdamW).
/// Throws ArgumentError for other dtypes, devices, layouts or shapes.
void adam_step(std::span<const AdamUpdate> updates, const AdamStep& step);

/// One parameter of a step with a rule of numerics/detail/update_rules.h.
template <template <class> class Rule>
struct RuleUpdate {
  Tensor parameter;             ///< f32 or f64, row-major
  Tensor gradient;              ///< same shape and dtype, any layout; not written
  std::array<Tensor, 3> state;  ///< states of the rule, shaped like the parameter; undefined: not kept, 0
  double keep = 1;              ///< factor of the parameter, applied first
  double weight_decay = 0;      ///< times the parameter, added to the gradient
  Rule<double> rule;
};

/// Applies the rule of each parameter. Throws ArgumentError for other dtypes, devices, layouts or shapes.
template <template <class> class Rule>
void rule_step(std::span<const RuleUpdate<Rule>> updates, double gradient_scale = 1);

/// Updates average += rate * (value - average) for each pair of the same shape and dtype, f32 or f64. Throws
/// ArgumentError if the lists do not match, or if the tensors are on different devices.
void move_towards(std::span<Tensor> averages, std::span<const Tensor> values, double rate);
/// Swaps the contents of the pairs. Throws ArgumentError if they do not match.
void swap_contents(std::span<Tensor> a, std::span<Tensor> b);

/// Returns the Euclidean norm of all elements together, summed in f64 in an order that does not depend on the
/// threads. Tensors are f32 or f64, on one device; undefined tensors count as empty. Waits for a GPU.
[[nodiscard]] double norm(std::span<const Tensor> tensors);

}  // namespace fq::ops
