#pragma once

/// Layers that an engine computes on codes of their own inputs: additions, concatenations, averages.
///
/// They are modules, not operators called in passing, so that `quantize` can put a quantizer on each of their
/// inputs (quant_modules.h). Shapes and errors are those of the operators (core/ops/elementwise.h, shape.h,
/// pool.h).
///
///     Child<Add> add_ = add_module("add", std::make_shared<Add>());
///     Variable y = add_(branch, x);

#include "fakequant/core/ops/pool.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// Options of a layer that has none.
struct NoOptions {};

/// a + b, broadcasting; called with two inputs.
class Add : public Module {
 public:
  explicit Add(NoOptions = {}) {}
  [[nodiscard]] NoOptions options() const noexcept { return {}; }
  [[nodiscard]] std::string type() const override { return "add"; }

 protected:
  Variable forward(const std::vector<Variable>& inputs) override;
  using Module::forward;
};

/// a * b, broadcasting; called with two inputs. `quantize` leaves it as it is.
class Multiply : public Module {
 public:
  [[nodiscard]] std::string type() const override { return "multiply"; }

 protected:
  Variable forward(const std::vector<Variable>& inputs) override;
  using Module::forward;
};

/// The inputs side by side along an axis, channels by default; called with a list of any number of them.
class Concat : public Module {
 public:
  explicit Concat(int axis = 1) : axis_(axis) {}
  [[nodiscard]] int options() const noexcept { return axis_; }
  [[nodiscard]] std::string type() const override { return "concat"; }
  [[nodiscard]] std::string describe() const override { return "axis " + std::to_string(axis_); }

 protected:
  Variable forward(const std::vector<Variable>& inputs) override;
  using Module::forward;

  int axis_;
};

/// Means over windows of pixels: [N, C, H, W] -> [N, C, H', W'], by ops::avg_pool2d; of a sequence [N, C, L]
/// as an image of height 1.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(ops::Pool2d options) : options_(options) {}
  [[nodiscard]] const ops::Pool2d& options() const noexcept { return options_; }
  [[nodiscard]] std::string type() const override { return "avg_pool"; }
  [[nodiscard]] std::string describe() const override;

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  ops::Pool2d options_;
};

/// The mean of each channel over all of its pixels: [N, C, H, W] -> [N, C, 1, 1], by ops::global_avg_pool2d;
/// of a sequence [N, C, L] -> [N, C, 1].
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
