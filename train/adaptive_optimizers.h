#pragma once

/// Optimizers beside Sgd and Adam (train/optimizer.h): RMSprop, Adagrad, NAdam, Lion and LAMB.
///
///     Lion optimizer(model.named_parameters(), {.learning_rate = 1e-4, .weight_decay = 0.1},
///                    decay_weights_only(model));
///
/// g is gradient_scale * gradient, with weight_decay * p added unless decay is said to be decoupled: then a
/// step first multiplies p by 1 - learning_rate * weight_decay. t counts a parameter's steps from 1. States
/// are zeros at first. All throw ArgumentError for negative or non-finite options, and for a beta or momentum
/// of 1 or more.

#include <vector>

#include "fakequant/train/optimizer.h"

namespace fq {

/// What RmsProp is told.
struct RmsPropOptions {
  double learning_rate = 0.01;
  double alpha = 0.99;      ///< of the moving mean of squares
  double eps = 1e-8;        ///< keeps the quotient finite
  double momentum = 0;      ///< 0 keeps no state for it
  bool centered = false;    ///< squares less the square of the moving mean
  double weight_decay = 0;  ///< added to the gradient
};

/// torch.optim.RMSprop (Tieleman and Hinton 2012; centred: Graves, arXiv:1308.0850): v = alpha * v + (1 -
/// alpha) * g^2; d = g / (sqrt(v - a^2) + eps), a the moving mean of g where it is centred, else 0; b =
/// momentum * b + d; p -= learning_rate * b. The states are "square", "mean" where centred, and "momentum"
/// where it is not 0.
class RmsProp : public Optimizer {
 public:
  /// The parameters and their rules are as for Sgd; so they are for all classes below.
  explicit RmsProp(NamedParameters parameters, RmsPropOptions options = {},
                   const std::vector<ParameterRule>& rules = {});
  [[nodiscard]] std::string_view type() const noexcept override { return "rmsprop"; }

 protected:
  void update(const std::vector<std::size_t>& indices, double gradient_scale) override;

 private:
  RmsPropOptions options_;
};

/// What Adagrad is told.
struct AdagradOptions {
  double learning_rate = 0.01;
  double rate_decay = 0;    ///< the rate is learning_rate / (1 + (t - 1) * rate_decay)
  double eps = 1e-10;       ///< keeps the quotient finite
  double weight_decay = 0;  ///< added to the gradient
};

/// torch.optim.Adagrad (Duchi et al. 2011), whose rate falls with every gradient that a parameter has seen: s
/// += g^2; p -= rate * g / (sqrt(s) + eps). The state is "sum".
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(NamedParameters parameters, AdagradOptions options = {},
                   const std::vector<ParameterRule>& rules = {});
  [[nodiscard]] std::string_view type() const noexcept override { return "adagrad"; }

 protected:
  void update(const std::vector<std::size_t>& indices, double gradient_scale) override;

 private:
  AdagradOptions options_;
};

/// What NAdam is told.
struct NAdamOptions {
  double learning_rate = 2e-3;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< as of Adam
  double momentum_decay = 4e-3;                   ///< psi below
  double weight_decay = 0;                        ///< added to the gradient
  bool decoupled = false;                         ///< weight decay
};

/// torch.optim.NAdam (Dozat 2016): Adam's means m and v with Nesterov's momentum mu_t = beta1 * (1 - 0.96^(t
/// * psi) / 2), M_t the product of mu_1 .. mu_t, psi the momentum_decay:
///
///     p -= learning_rate * ((1 - mu_t) / (1 - M_t) * g + mu_(t+1) / (1 - M_(t+1)) * m)
///          / (sqrt(v / (1 - beta2^t)) + eps)
///
/// The states are "mean" and "square".
class NAdam : public Optimizer {
 public:
  explicit NAdam(NamedParameters parameters, NAdamOptions options = {},
                 const std::vector<ParameterRule>& rules = {});
  [[nodiscard]] std::string_view type() const noexcept override { return "nadam"; }

 protected:
  void update(const std::vector<std::size_t>& indices, double gradient_scale) override;

 private:
  [[nodiscard]] double momentum(std::int64_t t) const;
  [[nodiscard]] double product(std::int64_t t);

  NAdamOptions options_;
  std::vector<double> products_;  // M_0, M_1, ..
};

/// What Lion is told. Its steps have the size of the learning rate in every element, so that its paper
/// advises a third to a tenth of AdamW's rate.
struct LionOptions {
  double learning_rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;  ///< decoupled
};

/// Lion (Chen et al., arXiv:2302.06675, algorithm 2): p -= learning_rate * sign(beta1 * m + (1 - beta1) * g);
/// m = beta2 * m + (1 - beta2) * g. The state is "mean".
class Lion : public Optimizer {
 public:
  explicit Lion(NamedParameters parameters, LionOptions options = {},
                const std::vector<ParameterRule>& rules = {});
  [[nodiscard]] std::string_view type() const noexcept override { return "lion"; }

 protected:
  void update(const std::vector<std::size_t>& indices, double gradient_scale) override;

 private:
  LionOptions options_;
};

/// What Lamb is told.
struct LambOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-6;
  double weight_decay = 0;  ///< times p, within the direction
};

/// LAMB (You et al., arXiv:1904.00962, algorithm 2, with Adam's corrections), for large batches: r = m / (1 -
/// beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * p; p -= learning_rate * |p| / |r| * r, the
/// quotient of the Euclidean norms 1 where one of them is 0. The states are "mean" and "square". A step waits
/// for a GPU.
class Lamb : public Optimizer {
 public:
  explicit Lamb(NamedParameters parameters, LambOptions options = {},
                const std::vector<ParameterRule>& rules = {});
  [[nodiscard]] std::string_view type() const noexcept override { return "lamb"; }

 protected:
  void update(const std::vector<std::size_t>& indices, double gradient_scale) override;

 private:
  LambOptions options_;
};

}  // namespace fq
