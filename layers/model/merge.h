#pragma once

/// Layers that an engine computes on codes of their own inputs: additions, concatenations, averages.
///
/// These operators are modules so that `quantize` can add a quantizer to each of their inputs
/// (layers/modules/quant_modules.h). The operators define shapes and errors (core/ops/elementwise.h, shape.h,
/// pool.h).
///
///     Add sum;
///     Variable y = sum(branch, x);
///
/// An ops::add within a module's `forward` stays in floats, because `quantize` cannot add quantizers to its
/// inputs.

#include "fakequant/core/ops/pool.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// Options of a layer without options.
struct NoOptions {};

/// Computes a + b with broadcasting. Throws ArgumentError unless called with two inputs.
class Add : public Module {
 public:
  explicit Add(NoOptions = {}) {}
  [[nodiscard]] NoOptions options() const noexcept { return {}; }
  [[nodiscard]] std::string type() const override { return "add"; }

 protected:
  Variable forward(const std::vector<Variable>& inputs) override;
  using Module::forward;
};

/// Computes a * b of two inputs with broadcasting. `quantize` leaves it unchanged.
class Multiply : public Module {
 public:
  [[nodiscard]] std::string type() const override { return "multiply"; }

 protected:
  Variable forward(const std::vector<Variable>& inputs) override;
  using Module::forward;
};

/// Concatenates any number of inputs along an axis, by default the channels.
class Concat : public Module {
 public:
  /// `axis` counts the batch as 0. Negative axes count from the end.
  explicit Concat(int axis = 1) : axis_(axis) {}
  /// Returns the axis. The quantized counterpart is constructed from it.
  [[nodiscard]] int options() const noexcept { return axis_; }
  [[nodiscard]] std::string type() const override { return "concat"; }
  [[nodiscard]] std::string describe() const override { return "axis " + std::to_string(axis_); }

 protected:
  Variable forward(const std::vector<Variable>& inputs) override;
  using Module::forward;

  int axis_;
};

/// Means over windows of pixels, [N, C, H, W] -> [N, C, H', W'], with ops::avg_pool2d. A sequence [N, C, L]
/// is treated as an image of height 1.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(ops::Pool2d options) : options_(options) {}
  /// Returns the window. The quantized counterpart is constructed from it.
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

/// The mean of each channel over all pixels, [N, C, H, W] -> [N, C, 1, 1], with ops::global_avg_pool2d. A
/// sequence [N, C, L] gives [N, C, 1], a volume [N, C, D, H, W] gives [N, C, 1, 1, 1].
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
