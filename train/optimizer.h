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
/// Create the optimizer when the model has all of its parameters (after `quantize`, and after ranges became
/// parameters) and is on the device of training. Formulas are the same as in torch.optim.
///
/// In formulas, g is gradient_scale * gradient. weight_decay * p is added to it, unless decay is decoupled.
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

/// Parameters with their paths, as Module::named_parameters returns them.
using NamedParameters = std::vector<std::pair<std::string, Variable>>;

/// Settings for the parameters whose name matches `pattern` (`*` is any run of characters, `?` one
/// character). If several rules match, the last rule that has a field decides it. A rule may match nothing.
struct ParameterRule {
  /// Pattern of parameter names, such as "*.bias" or "stage1.*".
  std::string pattern;
  std::optional<double> weight_decay;          ///< 0 or more; replaces the optimizer's weight decay
  std::optional<double> learning_rate_factor;  ///< multiplies the optimizer's learning rate
};

/// Returns rules that set weight decay to 0 for biases, normalization scales and quantizer ranges: parameters
/// with at most one axis, and parameters named "..amax". All other parameters keep the optimizer's weight
/// decay.
[[nodiscard]] std::vector<ParameterRule> decay_weights_only(const Module& model);

/// Updates a list of parameters; it shares them with the model. A parameter with two names is updated once,
/// under its first name. Skips parameters without a gradient. State tensors have the dtype and device of
/// their parameter. Use an optimizer from one thread at a time. The bits do not depend on the number of
/// threads.
///
/// To write another optimizer, derive from this class and override `type` and `update`.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;  // state belongs to one list of parameters
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates the parameters with their gradients times `gradient_scale` (for clipping or accumulation).
  /// Writes the parameters in place and increases their versions, so that weight codes are recomputed. Keeps
  /// the gradients until `zero_grad`.
  void step(double gradient_scale = 1);
  /// Clears the gradients of all parameters.
  void zero_grad();

  /// Returns the learning rate of the next step. A schedule (train/schedule.h) sets it before each step.
  [[nodiscard]] double learning_rate() const noexcept { return learning_rate_; }
  /// Sets the learning rate. Throws ArgumentError if it is negative or not finite.
  void set_learning_rate(double learning_rate);
  /// Returns the trained parameters, each once.
  [[nodiscard]] const NamedParameters& parameters() const noexcept { return parameters_; }
  /// Returns the name in OptimizerOptions::kind: "sgd", "adam", ..
  [[nodiscard]] virtual std::string_view type() const noexcept = 0;

  /// Returns each state tensor as `<parameter>/<state>`, shared, not copied, and the attributes `type` and
  /// `steps`.
  [[nodiscard]] virtual StateDict state_dict() const;
  /// Sets the state from `state_dict` of an optimizer of the same type with the same parameters. Otherwise
  /// throws ArgumentError naming the first parameter that differs, and changes nothing. The learning rate is
  /// not part of the state.
  virtual void load_state(const StateDict& state);

 protected:
  /// State of a parameter.
  struct Item {
    double weight_decay, learning_rate_factor;
    std::int64_t steps = 0;
    std::vector<Tensor> state;  ///< tensors in the order of `state_names`
  };

  /// Each parameter gets one state tensor of zeros per name in `state_names`. Throws ArgumentError for an
  /// undefined parameter, and for rates and decays that are negative or not finite.
  Optimizer(NamedParameters parameters, double learning_rate, double weight_decay,
            const std::vector<ParameterRule>& rules, std::vector<std::string> state_names);
  /// Updates the parameters `indices`. Their gradients are defined, and their `steps` include this step.
  virtual void update(const std::vector<std::size_t>& indices, double gradient_scale) = 0;
  /// Returns the state of parameter `i`.
  [[nodiscard]] const Item& item(std::size_t i) const { return items_[i]; }
  /// Returns the learning rate of parameter `i`.
  [[nodiscard]] double parameter_rate(std::size_t i) const {
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
  /// Initial learning rate; schedules multiply it.
  double learning_rate = 0.01;
  double momentum = 0;      ///< 0 to less than 1; 0 keeps no state
  double weight_decay = 0;  ///< factor of the parameter that is added to its gradient
  bool nesterov = false;    ///< Nesterov's form of the momentum
  /// Dampening of gradients in the momentum, 0 to 1; requires momentum, and not Nesterov's.
  double dampening = 0;
};

/// Stochastic gradient descent with momentum, torch.optim.SGD. With g = gradient_scale * gradient +
/// weight_decay * p, a step computes m = momentum * m + (1 - dampening) * g, in the first step of a parameter
/// m = g. Then p -= learning_rate * d. d is g without momentum, g + momentum * m with Nesterov's, else m. The
/// state of a parameter is "momentum".
class Sgd : public Optimizer {
 public:
  /// Throws ArgumentError for negative or non-finite options, a momentum of 1 or more, and Nesterov's without
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

/// Options of Adam and AdamW.
struct AdamOptions {
  /// Initial learning rate; schedules multiply it.
  double learning_rate = 1e-3;
  double beta1 = 0.9;       ///< decay of the moving mean of gradients, 0 to less than 1
  double beta2 = 0.999;     ///< decay of the moving mean of squared gradients, 0 to less than 1
  double eps = 1e-8;        ///< added to the divisor, so that it is not 0
  double weight_decay = 0;  ///< added to the gradient in Adam, decoupled in AdamW
  bool amsgrad = false;     ///< uses the largest v so far (Reddi et al. 2018), the state "largest"
};

/// Adam (Kingma and Ba 2015, torch.optim.Adam), with weight decay added to the gradient g: m = beta1 * m + (1
/// - beta1) * g; v = beta2 * v + (1 - beta2) * g^2; p -= learning_rate / (1 - beta1^t) * m / (sqrt(v / (1 -
/// beta2^t)) + eps), where t counts the steps of this parameter. The states of a parameter are "mean" and
/// "square".
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

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019, torch.optim.AdamW). Each step first
/// multiplies the parameter by 1 - learning_rate * weight_decay. Decay does not change the gradient.
class AdamW : public Adam {
 public:
  /// Throws as Adam.
  explicit AdamW(NamedParameters parameters, AdamOptions options = {},
                 const std::vector<ParameterRule>& rules = {})
      : Adam(std::move(parameters), options, rules, true) {}
};

/// Options of an optimizer that is selected by name, for options and files. Fields that the optimizer does
/// not have are ignored.
struct OptimizerOptions {
  /// "sgd", "adam", "adamw", "rmsprop", "adagrad", "nadam", "lion" or "lamb" (train/optimizer.h).
  std::string kind = "adamw";
  double learning_rate = 1e-3;
  double weight_decay = 0;
  std::vector<ParameterRule> rules = {};  ///< applied after the rules of `decay_weights_only`
  bool decay_all = false;                 ///< whether weight decay also applies to biases, norms and ranges
  std::optional<double> momentum = {};    ///< momentum of "sgd", 0.9 by default, and "rmsprop", 0 by default
  bool nesterov = false;                  ///< Nesterov's momentum of "sgd"
  double dampening = 0;                   ///< dampening of "sgd"
  double beta1 = 0.9;                     ///< beta1 of "adam", "adamw", "nadam", "lion" and "lamb"
  std::optional<double> beta2 = {};       ///< beta2 of the same; 0.99 for "lion", else 0.999
  std::optional<double> eps = {};         ///< eps of all kinds except "sgd" and "lion"; default of the class
  bool amsgrad = false;                   ///< `amsgrad` of "adam" and "adamw"
  double alpha = 0.99;                    ///< decay of the mean of squares of "rmsprop"
  bool centered = false;                  ///< `centered` of "rmsprop"
  double rate_decay = 0;                  ///< decay of the learning rate of "adagrad"
};

/// Returns the allowed values of OptimizerOptions::kind.
[[nodiscard]] const std::vector<std::string>& optimizer_kinds();
/// Returns an optimizer over all parameters of the model, which must have all of them already. Throws
/// ArgumentError for an unknown kind, with a suggestion, and for options that the optimizer rejects.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Module& model, const OptimizerOptions& options);
/// Returns an optimizer over some parameters of the model.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Module& model, const OptimizerOptions& options,
                                                        const NamedParameters& parameters);

/// Returns the Euclidean norm of all gradients together, in f64. Parameters without a gradient count as zero.
/// Waits for a GPU.
[[nodiscard]] double gradient_norm(const std::vector<Variable>& parameters);

/// Returns the factor of gradient clipping by norm (Pascanu et al. 2013): min(1, max_norm / norm), for
/// Optimizer::step. Returns 1 if `max_norm` is 0 (no clipping). Throws ArgumentError for a negative or NaN
/// `max_norm`, and NumericError for a norm that is NaN or infinite.
[[nodiscard]] double clip_factor(double norm, double max_norm);

/// Options of RmsProp.
struct RmsPropOptions {
  double learning_rate = 0.01;
  double alpha = 0.99;      ///< decay of the moving mean of squares
  double eps = 1e-8;        ///< added to the divisor, so that it is not 0
  double momentum = 0;      ///< momentum; 0 keeps no state for it
  bool centered = false;    ///< whether the square of the moving mean is subtracted from the mean of squares
  double weight_decay = 0;  ///< added to the gradient
};

/// torch.optim.RMSprop (Tieleman and Hinton 2012; centered: Graves, arXiv:1308.0850): v = alpha * v + (1 -
/// alpha) * g^2; d = g / (sqrt(v - a^2) + eps), where a is the moving mean of g if centered, else 0; b =
/// momentum * b + d; p -= learning_rate * b. The states are "square", "mean" if centered, and "momentum"
/// unless it is 0.
class RmsProp : public Optimizer {
 public:
  /// Parameters and rules are the same as for Sgd, in this class and the classes below.
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
  double eps = 1e-10;       ///< added to the divisor, so that it is not 0
  double weight_decay = 0;  ///< added to the gradient
};

/// torch.optim.Adagrad (Duchi et al. 2011). The effective rate of a parameter falls with each gradient: s +=
/// g^2; p -= rate * g / (sqrt(s) + eps). The state is "sum".
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
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< the same as in AdamOptions
  double momentum_decay = 4e-3;                   ///< psi in the formula of NAdam
  double weight_decay = 0;                        ///< added to the gradient
  bool decoupled = false;                         ///< whether weight decay is decoupled
};

/// torch.optim.NAdam (Dozat 2016): Adam's means m and v with Nesterov's momentum mu_t = beta1 * (1 - 0.96^(t
/// * psi) / 2). M_t is the product of mu_1 .. mu_t, and psi is momentum_decay:
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

/// Options of Lion. Its steps have the size of the learning rate in every element. The paper recommends a
/// third to a tenth of AdamW's rate.
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
  double weight_decay = 0;  ///< factor of p that is added to the direction r
};

/// LAMB (You et al., arXiv:1904.00962, algorithm 2, with Adam's corrections), for large batches: r = m / (1 -
/// beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * p; p -= learning_rate * |p| / |r| * r. The
/// quotient of the Euclidean norms is 1 if one of them is 0. The states are "mean" and "square". A step waits
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
