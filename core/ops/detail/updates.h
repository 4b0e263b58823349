#pragma once

/// Updates of parameters from gradients: one call for a whole list of them. These write their tensors in
/// place (versions are bumped), record nothing and are elementwise: results do not depend on the thread
/// count.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fakequant/core/numerics/detail/update_rules.h"
#include "fakequant/core/tensor.h"

namespace fq::ops {

/// One parameter of a step of stochastic gradient descent. Handles: the parameter and its state are written.
struct SgdUpdate {
  Tensor parameter;  ///< f32 or f64, row-major
  Tensor gradient;   ///< same shape and dtype, any layout; not written
  Tensor momentum;   ///< the moving sum of gradients, zeros at first; undefined without momentum
  double learning_rate = 0;
  double weight_decay = 0;
};

struct SgdStep {
  double momentum = 0;
  bool nesterov = false;
  double gradient_scale = 1;  ///< multiplies every gradient first: clipping, accumulation
};

/// g = gradient_scale * gradient + weight_decay * p; m = momentum * m + g; p -= learning_rate * d, where d is
/// g without momentum, g + momentum * m with Nesterov's, else m (torch.optim.SGD, no dampening). Throws
/// ArgumentError for other dtypes, devices, layouts or shapes.
void sgd_step(std::span<const SgdUpdate> updates, const SgdStep& step);

/// One parameter of a step of Adam.
struct AdamUpdate {
  Tensor parameter;       ///< f32 or f64, row-major
  Tensor gradient;        ///< same shape and dtype, any layout; not written
  Tensor mean;            ///< moving mean of gradients, zeros at first
  Tensor square;          ///< moving mean of their squares, zeros at first
  std::int64_t step = 1;  ///< of this parameter, the first is 1: moving means are corrected for their start
  double learning_rate = 0;
  double weight_decay = 0;
};

struct AdamStep {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool decoupled =
      false;  ///< AdamW: p *= 1 - learning_rate * weight_decay, instead of adding to the gradient
  double gradient_scale = 1;  ///< multiplies every gradient first
};

/// m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2;
/// p -= learning_rate / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
/// (Kingma and Ba 2015; decoupled decay by Loshchilov and Hutter 2019; torch.optim.Adam and AdamW).
/// Throws ArgumentError for other dtypes, devices, layouts or shapes.
void adam_step(std::span<const AdamUpdate> updates, const AdamStep& step);

/// One parameter of a step by a formula of numerics/detail/update_rules.h.
template <template <class> class Rule>
struct RuleUpdate {
  Tensor parameter;             ///< f32 or f64, row-major
  Tensor gradient;              ///< same shape and dtype, any layout; not written
  std::array<Tensor, 3> state;  ///< those that the rule has, like the parameter; undefined: not kept, 0
  double keep = 1;              ///< multiplies the parameter first
  double weight_decay = 0;      ///< times the parameter, added to the gradient
  Rule<double> rule;
};

/// Of each parameter by its own numbers. Throws ArgumentError for other dtypes, devices, layouts or shapes.
template <template <class> class Rule>
void rule_step(std::span<const RuleUpdate<Rule>> updates, double gradient_scale = 1);

/// average += rate * (value - average) for each pair: same shapes and dtypes, f32 or f64.
/// Throws ArgumentError when the lists do not agree, or are not all on one device.
void move_towards(std::span<Tensor> averages, std::span<const Tensor> values, double rate);
/// Exchanges the contents of the pairs. Throws ArgumentError when they do not agree.
void swap_contents(std::span<Tensor> a, std::span<Tensor> b);

/// The Euclidean norm of all elements together, summed in f64 in an order that does not depend on the
/// threads. f32 or f64, on one device; undefined tensors count as empty. It waits for a GPU.
[[nodiscard]] double norm(std::span<const Tensor> tensors);

}  // namespace fq::ops
