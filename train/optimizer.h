#pragma once

/// Optimizers: SGD, Adam, RMSprop, Adagrad, NAdam, Lion and LAMB.
///
///     Sgd optimizer(model.named_parameters(), {.learning_rate = 0.1, .momentum = 0.9},
///                   decay_weights_only(model));
///     for (const auto& [x, y] : samples) {
///       ops::cross_entropy(model(x), y).backward();
///       optimizer.step(clip_factor(gradient_norm(model.parameters()), 1.0));
///       optimizer.zero_grad();
///     }
///
/// Make an optimizer when the model has all of its parameters (after `quantize`, and after ranges became
/// parameters) and is on the device of the training. Formulas are those of torch.optim.
///
/// In formulas, g is gradient_scale * gradient, with weight_decay * p added unless decay is decoupled.
/// Decoupled decay first multiplies p by 1 - learning_rate * weight_decay. t counts the steps of a parameter
/// from 1. States begin as zeros. Constructors throw ArgumentError for negative or non-finite options, and
/// for a beta or momentum of 1 or more.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/variable.h"

namespace fq {

class Module;
namespace ops {
struct SgdUpdate;
struct AdamUpdate;
}  // namespace ops

/// Parameters by their paths: what Module::named_parameters gives.
using NamedParameters = std::vector<std::pair<std::string, Variable>>;

/// Other settings for the parameters whose name matches `pattern` (`*` any run of characters, `?` one). Where
/// several rules match, each field is that of the last one which gives it. A rule that matches nothing is no
/// error.
struct ParameterRule {
  /// Which parameters: "*.bias", "stage1.*".
  std::string pattern;
  std::optional<double> weight_decay;          ///< 0 or more, in place of the optimizer's
  std::optional<double> learning_rate_factor;  ///< multiplies the optimizer's learning rate
};

/// Rules that take weight decay off biases, the scales of normalisation and the ranges of quantizers: off
/// parameters of at most one axis and those named "..amax". The optimizer's weight decay is then for all the
/// others.
[[nodiscard]] std::vector<ParameterRule> decay_weights_only(const Module& model);

/// Steps over a list of parameters, held by handle. A parameter that is registered under two names is one,
/// under its first name. Parameters without a gradient are passed over. State is of the parameter's dtype and
/// lies on its device. For use by one thread at a time; the bits do not depend on the number of threads.
///
/// A further optimizer derives from it and overrides `type` and `update`.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;  // state belongs to one list of parameters
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update by the gradients times `gradient_scale` (what clipping or accumulation asks for). It writes
  /// the parameters in place, whose versions rise, so that codes of weights are made anew. The gradients stay
  /// until `zero_grad`.
  void step(double gradient_scale = 1);
  /// Forgets the gradients of all parameters.
  void zero_grad();

  /// The rate of the next step; schedules (train/schedule.h) set it before each.
  [[nodiscard]] double learning_rate() const noexcept { return learning_rate_; }
  /// Sets it. Throws ArgumentError for a negative or non-finite one.
  void set_learning_rate(double learning_rate);
  /// The parameters that are trained, each once.
  [[nodiscard]] const NamedParameters& parameters() const noexcept { return parameters_; }
  /// "sgd", "adam", ..: as OptimizerOptions::kind has it.
  [[nodiscard]] virtual std::string_view type() const noexcept = 0;

  /// Each tensor of state as `<parameter>/<state>`, shared, not copied; attributes `type` and `steps`.
  [[nodiscard]] virtual StateDict state_dict() const;
  /// Takes back what `state_dict` of an optimizer of this type over the same parameters gave. Throws
  /// ArgumentError otherwise, naming the first parameter that differs; nothing is changed then. The learning
  /// rate is not part of it.
  virtual void load_state(const StateDict& state);

 protected:
  /// What is kept of a parameter.
  struct Item {
    double weight_decay, learning_rate_factor;
    std::int64_t steps = 0;
    std::vector<Tensor> state;  ///< in the order of `state_names`
  };

  /// `state_names` are those of the tensors that each parameter gets, zeros at first. Throws ArgumentError
  /// for an undefined parameter, and for rates and decays that are negative or not finite.
  Optimizer(NamedParameters parameters, double learning_rate, double weight_decay,
            const std::vector<ParameterRule>& rules, std::vector<std::string> state_names);
  /// Updates those of `indices`, whose gradients are defined and whose `steps` count this one already.
  virtual void update(const std::vector<std::size_t>& indices, double gradient_scale) = 0;
  /// What is kept of parameter `i`, and the rate that it is stepped with.
  [[nodiscard]] const Item& item(std::size_t i) const { return items_[i]; }
  [[nodiscard]] double learning_rate_of(std::size_t i) const {
    return learning_rate_ * items_[i].learning_rate_factor;
  }

 private:
  NamedParameters parameters_;
  std::vector<Item> items_;
  std::vector<std::string> state_names_;
  double learning_rate_ = 0;
};

/// Options of Sgd.
struct SgdOptions {
  /// The rate at first; schedules multiply it.
  double learning_rate = 0.01;
  double momentum = 0;      ///< 0 to less than 1; 0 keeps no state
  double weight_decay = 0;  ///< added to the gradient, times the parameter
  bool nesterov = false;    ///< Nesterov's form of the momentum
  double dampening = 0;     ///< of gradients in the momentum, 0 to 1; with momentum, and not with Nesterov's
};

/// Stochastic gradient descent with momentum, torch.optim.SGD. With g = gradient_scale * gradient +
/// weight_decay * p a step is m = momentum * m + (1 - dampening) * g, in a parameter's first step m = g; p -=
/// learning_rate * d, where d is g without momentum, g + momentum * m with Nesterov's, else m. The state of a
/// parameter is "momentum".
class Sgd : public Optimizer {
 public:
  /// Throws ArgumentError for negative or non-finite options, a momentum of 1 or more, Nesterov's without
  /// momentum.
  explicit Sgd(NamedParameters parameters, SgdOptions options = {},
               const std::vector<ParameterRule>& rules = {});
  ~Sgd() override;
  [[nodiscard]] std::string_view type() const noexcept override { return "sgd"; }

 protected:
  void update(const std::vector<std::size_t>& indices, double gradient_scale) override;

 private:
  void update_dampened(const std::vector<std::size_t>& indices, double gradient_scale);

  SgdOptions options_;
  std::vector<ops::SgdUpdate> updates_;
};

/// What Adam and AdamW are told.
struct AdamOptions {
  /// The rate at first; schedules multiply it.
  double learning_rate = 1e-3;
  double beta1 = 0.9;       ///< of the moving mean of gradients, 0 to less than 1
  double beta2 = 0.999;     ///< of the moving mean of their squares, 0 to less than 1
  double eps = 1e-8;        ///< keeps the quotient finite
  double weight_decay = 0;  ///< as the class says
  bool amsgrad = false;     ///< v is the largest so far (Reddi et al. 2018), the state "largest"
};

/// Adam (Kingma and Ba 2015, torch.optim.Adam), with weight decay added to the gradient g: m = beta1 * m + (1
/// - beta1) * g; v = beta2 * v + (1 - beta2) * g^2; p -= learning_rate / (1 - beta1^t) * m / (sqrt(v / (1 -
/// beta2^t)) + eps), t the steps of this parameter. The states of a parameter are "mean" and "square".
class Adam : public Optimizer {
 public:
  /// Throws ArgumentError for negative or non-finite options and a beta of 1 or more.
  explicit Adam(NamedParameters parameters, AdamOptions options = {},
                const std::vector<ParameterRule>& rules = {});
  ~Adam() override;
  [[nodiscard]] std::string_view type() const noexcept override { return decoupled_ ? "adamw" : "adam"; }

 protected:
  Adam(NamedParameters parameters, AdamOptions options, const std::vector<ParameterRule>& rules,
       bool decoupled);
  void update(const std::vector<std::size_t>& indices, double gradient_scale) override;

 private:
  void update_amsgrad(const std::vector<std::size_t>& indices, double gradient_scale);

  AdamOptions options_;
  bool decoupled_;
  std::vector<ops::AdamUpdate> updates_;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019, torch.optim.AdamW): each step first
/// multiplies the parameter by 1 - learning_rate * weight_decay, and the gradient is left alone.
class AdamW : public Adam {
 public:
  /// Throws as Adam.
  explicit AdamW(NamedParameters parameters, AdamOptions options = {},
                 const std::vector<ParameterRule>& rules = {})
      : Adam(std::move(parameters), options, rules, true) {}
};

/// An optimizer by name, for options and files. Fields that an optimizer has no use for are not read.
struct OptimizerOptions {
  /// "sgd", "adam", "adamw", "rmsprop", "adagrad", "nadam", "lion" or "lamb" (train/optimizer.h).
  std::string kind = "adamw";
  double learning_rate = 1e-3;
  double weight_decay = 0;
  std::vector<ParameterRule> rules = {};  ///< after those of `decay_weights_only`
  bool decay_all = false;                 ///< biases, norms and ranges too; otherwise `decay_weights_only`
  std::optional<double> momentum = {};    ///< of "sgd", 0.9, and "rmsprop", 0
  bool nesterov = false;                  ///< of "sgd"
  double dampening = 0;                   ///< of "sgd"
  double beta1 = 0.9;                     ///< of "adam", "adamw", "nadam", "lion" and "lamb"
  std::optional<double> beta2 = {};       ///< of these; 0.999, of "lion" 0.99
  std::optional<double> eps = {};         ///< of all but "sgd" and "lion"; as the class has it
  bool amsgrad = false;                   ///< of "adam" and "adamw"
  double alpha = 0.99;                    ///< of "rmsprop"
  bool centered = false;                  ///< of "rmsprop"
  double rate_decay = 0;                  ///< of "adagrad"
};

/// The kinds that `make_optimizer` knows.
[[nodiscard]] const std::vector<std::string>& optimizer_kinds();
/// The optimizer of that kind over all parameters of the model, which must have them all already. Throws
/// ArgumentError for an unknown kind, naming the nearest, and as the optimizers do.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Module& model, const OptimizerOptions& options);
/// The same over some of them.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Module& model, const OptimizerOptions& options,
                                                        const NamedParameters& parameters);

/// The Euclidean norm of all gradients together, in f64; parameters without one count as zero. It waits for a
/// GPU.
[[nodiscard]] double gradient_norm(const std::vector<Variable>& parameters);

/// Gradient clipping by norm (Pascanu et al. 2013): what gradients of that norm are to be multiplied by so
/// that it is at most `max_norm`, which is min(1, max_norm / norm). Hand it to Optimizer::step. It is 1 when
/// `max_norm` is 0 (no clipping). Throws ArgumentError for a negative or NaN `max_norm`, NumericError for a
/// norm that is NaN or infinite.
[[nodiscard]] double clip_factor(double norm, double max_norm);

/// Options of RmsProp.
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

/// Options of Adagrad.
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

/// Options of NAdam.
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

/// Options of Lion. Its steps have the size of the learning rate in every element, so that its paper
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

/// Options of Lamb.
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
