#pragma once

/// Optimizers: what turns gradients into better parameters.

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

using NamedParameters = std::vector<std::pair<std::string, Variable>>;

/// Other settings for the parameters whose name matches `pattern` (`*` any run of characters, `?` one).
/// Of several rules that match, each field is that of the last one which gives it.
struct ParameterRule {
  std::string pattern;
  std::optional<double> weight_decay;
  std::optional<double> learning_rate_factor;  ///< multiplies the optimizer's learning rate
};

/// No weight decay for biases, the scales of normalisation and the ranges of quantizers: parameters of at
/// most one axis. `weight_decay` is for all the others.
[[nodiscard]] std::vector<ParameterRule> decay_weights_only(const Module& model);

/// Steps over a list of parameters, held by handle. A parameter registered under two names is one, under its
/// first name. Parameters without a gradient are passed over.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;  // state belongs to one list of parameters
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update by the gradients times `gradient_scale` (what clipping or accumulation asks for).
  void step(double gradient_scale = 1);
  /// Forgets the gradients of all parameters.
  void zero_grad();

  [[nodiscard]] double learning_rate() const noexcept { return learning_rate_; }
  /// Throws ArgumentError for a negative or non-finite one.
  void set_learning_rate(double learning_rate);
  [[nodiscard]] const NamedParameters& parameters() const noexcept { return parameters_; }
  /// "sgd", "adam" or "adamw".
  [[nodiscard]] virtual std::string_view type() const noexcept = 0;

  /// `<parameter>/<state>` for each tensor of state, shared, not copied; attributes `type` and `steps`.
  [[nodiscard]] StateDict state_dict() const;
  /// Takes back what `state_dict` of an optimizer of this type over the same parameters gave.
  /// Throws ArgumentError otherwise, naming the first parameter that differs; nothing is changed then.
  void load_state(const StateDict& state);

 protected:
  struct Item {
    double weight_decay, learning_rate_factor;
    std::int64_t steps = 0;
    std::vector<Tensor> state;  ///< in the order of `state_names`
  };

  Optimizer(NamedParameters parameters, double learning_rate, double weight_decay,
            const std::vector<ParameterRule>& rules, std::vector<std::string> state_names);
  /// Updates those of `indices`, whose gradients are defined and whose `steps` count this one already.
  virtual void update(const std::vector<std::size_t>& indices, double gradient_scale) = 0;
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

struct SgdOptions {
  double learning_rate = 0.01;
  double momentum = 0;  ///< 0 keeps no state
  double weight_decay = 0;
  bool nesterov = false;
};

/// Stochastic gradient descent with momentum (ops::sgd_step).
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
  SgdOptions options_;
  std::vector<ops::SgdUpdate> updates_;
};

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
};

/// Adam, weight decay added to the gradient (ops::adam_step).
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
  AdamOptions options_;
  bool decoupled_;
  std::vector<ops::AdamUpdate> updates_;
};

/// Adam with decoupled weight decay.
class AdamW : public Adam {
 public:
  explicit AdamW(NamedParameters parameters, AdamOptions options = {},
                 const std::vector<ParameterRule>& rules = {})
      : Adam(std::move(parameters), options, rules, true) {}
};

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

/// The Euclidean norm of all gradients together; parameters without one count as zero.
[[nodiscard]] double gradient_norm(const std::vector<Variable>& parameters);

/// What gradients of that norm are to be multiplied by so that it is at most `max_norm`: min(1, max_norm /
/// norm). Hand it to Optimizer::step. 1 when `max_norm` is 0 (no clipping). Throws ArgumentError for a
/// negative or NaN `max_norm`, NumericError for a norm that is NaN or infinite.
[[nodiscard]] double clip_factor(double norm, double max_norm);

}  // namespace fq
