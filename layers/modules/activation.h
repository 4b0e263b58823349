#pragma once

/// Activations and other layers without parameters: one operator each, made by a function.
///
///     Sequential model;
///     model.add(make_relu()).add(make_function("softplus", {{"beta", 2.0}})).add(make_flatten());
///     const auto twice = std::make_shared<Function>("twice", "", [](const Variable& x, bool) {
///       return ops::scale(x, 2.0);
///     });
///     model.add("twice", twice);
///
/// Shapes, dtypes and errors are defined by the operator of the same name (core/ops/activation.h, loss.h,
/// pool.h, shape.h). `quantize` leaves these layers unchanged. They forward codes and integer sums if the
/// operator does.

#include <functional>

#include "fakequant/core/ops/operators.h"
#include "fakequant/core/ops/pool.h"
#include "fakequant/core/trace.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// A module that is one function of one input, without parameters.
class Function : public Module {
 public:
  /// Function that the module computes. `training` is true in training mode.
  using Operator = std::function<Variable(const Variable&, bool training)>;
  /// `type` and `description` are the return values of `type()` and `describe()`, for printing. `op` receives
  /// the training mode. Several threads may call it at once.
  Function(std::string type, std::string description, Operator op);
  [[nodiscard]] std::string type() const override { return type_; }
  [[nodiscard]] std::string describe() const override { return description_; }

 protected:
  Variable forward(const Variable& x) override { return op_(x, training()); }
  using Module::forward;

 private:
  std::string type_, description_;
  Operator op_;
};

/// A module that is one function of several inputs, without parameters. The operator checks the number of
/// inputs.
class FunctionOfSeveral : public Module {
 public:
  /// Function that the module computes. It receives the inputs in order.
  using Operator = std::function<Variable(const std::vector<Variable>&)>;
  FunctionOfSeveral(std::string type, std::string description, Operator op);
  [[nodiscard]] std::string type() const override { return type_; }
  [[nodiscard]] std::string describe() const override { return description_; }

 protected:
  Variable forward(const std::vector<Variable>& inputs) override { return op_(inputs); }
  using Module::forward;

 private:
  std::string type_, description_;
  Operator op_;
};

/// Computes x where x > 0, else weight * x. The parameter `weight` has one slope, or one per channel (axis
/// 1), initially 0.25.
class PRelu : public Module {
 public:
  /// Throws ArgumentError if `slopes` is less than 1.
  explicit PRelu(std::int64_t slopes = 1);
  [[nodiscard]] std::string type() const override { return "prelu"; }
  [[nodiscard]] std::string describe() const override;

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  Variable weight_;
};

/// A tensor that belongs to the network and does not depend on the input, like a class token or a table of
/// positions. The parameter `value` has the shape [1, shape..], is initially zero and broadcasts against a
/// batch.
class Parameter : public Module {
 public:
  /// `shape` excludes the batch. With `repeat` the output is [N, shape..], where N is the first size of the
  /// input. If `trained` is false, the parameter takes no gradient.
  explicit Parameter(Shape shape, bool trained = true, bool repeat = false);
  [[nodiscard]] std::string type() const override { return "parameter"; }
  [[nodiscard]] std::string describe() const override;

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  Variable value_;
  bool repeat_;
};

/// Returns a layer that returns its input. Folding replaces batch norms by it.
[[nodiscard]] std::shared_ptr<Module> make_identity();
/// Returns a layer that computes a plain function of the operator table (core/ops/operators.h), like an
/// activation or a comparison. Missing options have their defaults.
///
///     const std::shared_ptr<Module> activation = make_function("leaky_relu", {{"slope", 0.1}});
///
/// Throws ArgumentError if the operator is not a plain function, if an option is unknown or missing, or if a
/// value is not allowed.
[[nodiscard]] std::shared_ptr<Module> make_function(std::string_view op, const Attributes& options = {});
/// Returns a layer of a plain function. `options` has one value for each option of the table row.
[[nodiscard]] std::shared_ptr<Module> make_function(const OperatorSchema& row, std::vector<double> options);
/// Returns a layer that computes max(x, 0). After a quantized layer, ReLU is a flag on the integer sums and
/// has no cost.
[[nodiscard]] std::shared_ptr<Module> make_relu();
/// Zeroes elements with probability p in training and scales the rest by 1/(1-p); in evaluation it does
/// nothing. Throws ArgumentError unless 0 <= p < 1.
[[nodiscard]] std::shared_ptr<Module> make_dropout(double p);
/// Other kinds of dropout (core/ops/activation.h). They drop whole channels, whole samples (stochastic depth,
/// on the branch of a residual block), elements or channels with SELU's statistics, or squares of `block`
/// pixels a side. The rules for `p` are the same as for `make_dropout`.
[[nodiscard]] std::shared_ptr<Module> make_channel_dropout(double p);
[[nodiscard]] std::shared_ptr<Module> make_drop_path(double p);
[[nodiscard]] std::shared_ptr<Module> make_alpha_dropout(double p, bool channels = false);
[[nodiscard]] std::shared_ptr<Module> make_drop_block(double p, std::int64_t block);
/// Joins the axes from `start_axis` on: [N, C, H, W] to [N, C*H*W].
[[nodiscard]] std::shared_ptr<Module> make_flatten(int start_axis = 1);
/// Reshapes each sample, to [N, shape..] with N the first size of the input. With `whole`, reshapes the batch
/// itself to `shape`. One size may be -1.
[[nodiscard]] std::shared_ptr<Module> make_reshape(Shape shape, bool whole = false);
/// Permutes axes: axis i of the output is axis axes[i] of the input. The batch is axis 0.
[[nodiscard]] std::shared_ptr<Module> make_transpose(std::vector<int> axes);
/// Returns a pool over images [N, C, H, W]. Sequences [N, C, L] are treated as images of height 1.
[[nodiscard]] std::shared_ptr<Module> make_max_pool(ops::Pool2d options);
/// Averages to a given output size, {1, 1} for one number per channel: ops::adaptive_avg_pool2d.
[[nodiscard]] std::shared_ptr<Module> make_adaptive_avg_pool(std::array<std::int64_t, 2> size);
/// Pools of volumes.
[[nodiscard]] std::shared_ptr<Module> make_max_pool3d(ops::Pool3d options);
[[nodiscard]] std::shared_ptr<Module> make_adaptive_avg_pool3d(std::array<std::int64_t, 3> size);

}  // namespace fq
