#pragma once

/// Layers that an engine computes on codes of their own inputs: additions, concatenations, averages.
///
/// They are modules, not operators called in passing, so that `quantize` can put a quantizer on each of their
/// inputs (layers/modules/quant_modules.h). Shapes and errors are those of the operators
/// (core/ops/elementwise.h, shape.h, pool.h).
///
///     Add sum;
///     Variable y = sum(branch, x);
///
/// An addition that is written as ops::add in a module of one's own stays float: `quantize` cannot see whose
/// inputs it should quantize.

#include "fakequant/core/ops/pool.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// The options of a layer that has none.
struct NoOptions {};

/// a + b, broadcasting. It is called with two inputs: ArgumentError for another number.
class Add : public Module {
 public:
  explicit Add(NoOptions = {}) {}
  [[nodiscard]] NoOptions options() const noexcept { return {}; }
  [[nodiscard]] std::string type() const override { return "add"; }

 protected:
  Variable forward(const std::vector<Variable>& inputs) override;
  using Module::forward;
};

/// a * b, broadcasting. It is called with two inputs; `quantize` leaves it as it is.
class Multiply : public Module {
 public:
  [[nodiscard]] std::string type() const override { return "multiply"; }

 protected:
  Variable forward(const std::vector<Variable>& inputs) override;
  using Module::forward;
};

/// The inputs side by side along an axis, channels by default. It is called with a list of any number of
/// them.
class Concat : public Module {
 public:
  /// `axis` counts the batch as 0; negative ones count from the back.
  explicit Concat(int axis = 1) : axis_(axis) {}
  /// The axis, by which a quantized counterpart is made.
  [[nodiscard]] int options() const noexcept { return axis_; }
  [[nodiscard]] std::string type() const override { return "concat"; }
  [[nodiscard]] std::string describe() const override { return "axis " + std::to_string(axis_); }

 protected:
  Variable forward(const std::vector<Variable>& inputs) override;
  using Module::forward;

  int axis_;
};

/// Means over windows of pixels, [N, C, H, W] -> [N, C, H', W'], by ops::avg_pool2d; a sequence [N, C, L] is
/// taken as an image of height 1.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(ops::Pool2d options) : options_(options) {}
  /// The window, by which a quantized counterpart is made.
  [[nodiscard]] const ops::Pool2d& options() const noexcept { return options_; }
  [[nodiscard]] std::string type() const override { return "avg_pool"; }
  [[nodiscard]] std::string describe() const override;

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  ops::Pool2d options_;
};

/// Means over windows of volumes: [N, C, D, H, W] -> [N, C, D', H', W'], by ops::avg_pool3d.
class AvgPool3d : public Module {
 public:
  explicit AvgPool3d(ops::Pool3d options) : options_(options) {}
  [[nodiscard]] const ops::Pool3d& options() const noexcept { return options_; }
  [[nodiscard]] std::string type() const override { return "avg_pool"; }
  [[nodiscard]] std::string describe() const override;

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  ops::Pool3d options_;
};

/// The mean of each channel over all of its pixels, [N, C, H, W] -> [N, C, 1, 1], by ops::global_avg_pool2d;
/// a sequence [N, C, L] gives [N, C, 1], a volume [N, C, D, H, W] gives [N, C, 1, 1, 1].
class GlobalAvgPool2d : public Module {
 public:
  explicit GlobalAvgPool2d(NoOptions = {}) {}
  [[nodiscard]] NoOptions options() const noexcept { return {}; }
  [[nodiscard]] std::string type() const override { return "global_avg_pool"; }

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;
};

}  // namespace fq
