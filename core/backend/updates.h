#pragma once

/// Arguments of the optimizer kernels on every device, f32 or f64.

#include <cstdint>
#include <span>
#include <variant>

#include "fakequant/core/device.h"
#include "fakequant/core/numerics/detail/update_rules.h"

namespace fq::detail {

template <class T>
struct SgdArrays {
  std::int64_t n;
  T* parameter;
  const T* gradient;
  T* momentum;  // null without momentum
  T learning_rate, weight_decay;
};

template <class T>
struct SgdFactors {
  T momentum, scale;
  bool nesterov;
};

template <class T>
struct AdamArrays {
  std::int64_t n;
  T* parameter;
  const T* gradient;
  T *mean, *square;
  T rate;          // learning rate / (1 - beta1^t)
  T root;          // 1 / sqrt(1 - beta2^t)
  T weight_decay;  // added to the gradient
  T keep;          // factor of the parameter, applied first
};

template <class T>
struct AdamFactors {
  T beta1, rest1, beta2, rest2;  // rest = 1 - beta, rounded once
  T eps, scale;
};

/// One array updated by a rule of numerics/detail/update_rules.h. The constants may differ between arrays.
template <class T, class Rule>
struct RuleArrays {
  std::int64_t n;
  T* parameter;
  const T* gradient;
  T* state[3];  // first Rule::states states; null if not kept
  // factors of the gradient, of the parameter (applied first), of the weight decay
  T scale, keep, weight_decay;
  Rule rule;

  FQ_HD UpdateElement<T> load(std::int64_t i) const {
    UpdateElement<T> e{};
    e.p = parameter[i] * keep;
    e.g = gradient[i] * scale + e.p * weight_decay;
    for (int k = 0; k < Rule::states; ++k) e.state[k] = state[k] != nullptr ? state[k][i] : T(0);
    return e;
  }
  FQ_HD void store(std::int64_t i, const UpdateElement<T>& e) const {
    parameter[i] = e.p;
    for (int k = 0; k < Rule::states; ++k)
      if (state[k] != nullptr) state[k][i] = e.state[k];
  }
  FQ_HD void update(std::int64_t i) const {
    UpdateElement<T> e = load(i);
    rule(e);
    store(i, e);
  }
};

template <class T, class Rule>
using RuleList = std::span<const RuleArrays<T, Rule>>;
/// Arrays of one of the rules.
template <class T>
using AnyRuleList =
    std::variant<RuleList<T, DampenedSgd<T>>, RuleList<T, RmsProp<T>>, RuleList<T, Adagrad<T>>,
                 RuleList<T, NAdam<T>>, RuleList<T, AmsGrad<T>>, RuleList<T, Lion<T>>,
                 RuleList<T, LambDirection<T>>, RuleList<T, Descent<T>>>;

template <class T>
struct PairArrays {
  std::int64_t n;
  T* left;
  const T* right;
};

/// Words of two tensors to swap.
struct SwapArrays {
  std::int64_t n;
  std::uint32_t *left, *right;
};

}  // namespace fq::detail
