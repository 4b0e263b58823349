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
/// Shapes, dtypes and errors are those of the operator of that name (core/ops/activation.h, loss.h, pool.h,
/// shape.h). Quantizing a model leaves these layers as they are: they pass codes and sums on where the
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
  /// What the module computes; it is told whether the module is in training mode.
  using Operator = std::function<Variable(const Variable&, bool training)>;
  /// `type` and `description` are what `type()` and `describe()` give, for printing; `op` is told whether the
  /// module is in training mode. It may run on several threads at once.
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

/// A module that is one function of several inputs, without parameters; the operator checks how many there
/// are.
class FunctionOfSeveral : public Module {
 public:
  /// What the module computes of its inputs, in their order.
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

/// x where x > 0, else weight * x. The parameter `weight` has one slope, or one for each channel (axis 1),
/// 0.25 at first.
class PRelu : public Module {
 public:
  /// Throws ArgumentError for less than one slope.
  explicit PRelu(std::int64_t slopes = 1);
  [[nodiscard]] std::string type() const override { return "prelu"; }
  [[nodiscard]] std::string describe() const override;

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  Variable weight_;
};

/// A tensor of the network's own, whatever its input is, such as a class token or a table of positions: the
/// parameter `value`, [1, shape..], zeros at first, which broadcasts against a batch.
class Parameter : public Module {
 public:
  /// `shape` has no batch. With `repeat` the output is [N, shape..], N being the input's first size; without
  /// `trained` it takes no gradient.
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

/// Gives its input back; batch norms become this when they are folded.
[[nodiscard]] std::shared_ptr<Module> make_identity();
/// A layer of a plain function of the operator table (core/ops/operators.h): an activation, a comparison, ..
/// Options that are not given have their defaults.
///
///     const std::shared_ptr<Module> activation = make_function("leaky_relu", {{"slope", 0.1}});
///
/// Throws ArgumentError for an operator that is no plain function, an unknown or missing option, and a value
/// that is not allowed.
[[nodiscard]] std::shared_ptr<Module> make_function(std::string_view op, const Attributes& options = {});
/// A layer of a plain function with one value for each option of its row.
[[nodiscard]] std::shared_ptr<Module> make_function(const OperatorSchema& row, std::vector<double> options);
/// max(x, 0). After a quantized layer it is a flag on the layer's sums and costs nothing.
[[nodiscard]] std::shared_ptr<Module> make_relu();
/// Zeroes elements with probability p in training and scales the rest by 1/(1-p); in evaluation it does
/// nothing. Throws ArgumentError unless 0 <= p < 1.
[[nodiscard]] std::shared_ptr<Module> make_dropout(double p);
/// The other forms of dropout (core/ops/activation.h): whole channels, whole samples (stochastic depth, on
/// the branch of a residual block), SELU's of elements or channels, and squares of `block` pixels a side.
/// Each as the one above.
[[nodiscard]] std::shared_ptr<Module> make_channel_dropout(double p);
[[nodiscard]] std::shared_ptr<Module> make_drop_path(double p);
[[nodiscard]] std::shared_ptr<Module> make_alpha_dropout(double p, bool channels = false);
[[nodiscard]] std::shared_ptr<Module> make_drop_block(double p, std::int64_t block);
/// Joins the axes from `start_axis` on: [N, C, H, W] to [N, C*H*W].
[[nodiscard]] std::shared_ptr<Module> make_flatten(int start_axis = 1);
/// Reshapes each sample, to [N, shape..] with N the input's first size, or with `whole` the batch itself to
/// `shape`; one size may be -1.
[[nodiscard]] std::shared_ptr<Module> make_reshape(Shape shape, bool whole = false);
/// The output's axis i is the input's axis axes[i], the batch being axis 0.
[[nodiscard]] std::shared_ptr<Module> make_transpose(std::vector<int> axes);
/// Pools of images [N, C, H, W] and, as images of height 1, of sequences [N, C, L].
[[nodiscard]] std::shared_ptr<Module> make_max_pool(ops::Pool2d options);
/// Averages to a given size of output, {1, 1} for one number a channel: ops::adaptive_avg_pool2d.
[[nodiscard]] std::shared_ptr<Module> make_adaptive_avg_pool(std::array<std::int64_t, 2> size);
/// Pools of volumes.
[[nodiscard]] std::shared_ptr<Module> make_max_pool3d(ops::Pool3d options);
[[nodiscard]] std::shared_ptr<Module> make_adaptive_avg_pool3d(std::array<std::int64_t, 3> size);

}  // namespace fq
