#include "fakequant/layers/modules/activation.h"

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/dropout.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/layers/modules/detail/on_image.h"

namespace fq {
namespace {

template <class F>
std::shared_ptr<Module> function(std::string type, F op, std::string description = {}) {
  return std::make_shared<Function>(std::move(type), std::move(description),
                                    [op = std::move(op)](const Variable& x, bool) { return op(x); });
}

/// op(x, p, training)
template <class F>
std::shared_ptr<Module> dropping(std::string type, double p, const std::string& more, F op) {
  FQ_CHECK(p >= 0 && p < 1, type, "p = {}: use 0 <= p < 1", p);
  return std::make_shared<Function>(std::move(type), fmt::format("p {}{}", p, more),
                                    [=](const Variable& x, bool training) { return op(x, p, training); });
}

}  // namespace

Function::Function(std::string type, std::string description, Operator op)
    : type_(std::move(type)), description_(std::move(description)), op_(std::move(op)) {}

FunctionOfSeveral::FunctionOfSeveral(std::string type, std::string description, Operator op)
    : type_(std::move(type)), description_(std::move(description)), op_(std::move(op)) {}

PRelu::PRelu(std::int64_t slopes) {
  FQ_CHECK(slopes > 0, "prelu", "{} slopes: give 1, or one for each channel", slopes);
  weight_ = add_parameter("weight", Tensor::full({slopes}, 0.25));
}
std::string PRelu::describe() const { return fmt::format("{} slopes", weight_.dim(0)); }
Variable PRelu::forward(const Variable& x) { return ops::prelu(x, weight_); }

Parameter::Parameter(Shape shape, bool trained, bool repeat) : repeat_(repeat) {
  shape.insert(shape.begin(), 1);
  value_ = add_parameter("value", Tensor::zeros(std::move(shape)));
  value_.set_requires_grad(trained);
}
std::string Parameter::describe() const { return to_string(value_.shape()); }
Variable Parameter::forward(const Variable& x) {
  if (!repeat_) return value_;
  Shape shape = value_.shape();
  shape[0] = x.dim(0);
  return ops::expand(value_, shape);
}

std::shared_ptr<Module> make_identity() {
  return function("identity", [](const Variable& x) { return x; });
}
std::shared_ptr<Module> make_relu() { return function("relu", ops::relu); }
std::shared_ptr<Module> make_relu6() { return function("relu6", ops::relu6); }
std::shared_ptr<Module> make_clip(double low, double high) {
  FQ_CHECK(low <= high, "clip", "the range {} to {} is empty", low, high);
  return function(
      "clip", [=](const Variable& x) { return ops::clip(x, low, high); }, fmt::format("{} .. {}", low, high));
}
std::shared_ptr<Module> make_leaky_relu(double slope) {
  return function(
      "leaky_relu", [=](const Variable& x) { return ops::leaky_relu(x, slope); },
      fmt::format("slope {}", slope));
}
std::shared_ptr<Module> make_gelu(bool approximate_tanh) {
  return function(
      "gelu", [=](const Variable& x) { return ops::gelu(x, approximate_tanh); },
      approximate_tanh ? "by tanh" : "");
}
std::shared_ptr<Module> make_silu() { return function("silu", ops::silu); }
std::shared_ptr<Module> make_sigmoid() { return function("sigmoid", ops::sigmoid); }
std::shared_ptr<Module> make_tanh() { return function("tanh", ops::tanh); }
std::shared_ptr<Module> make_hard_sigmoid() { return function("hard_sigmoid", ops::hard_sigmoid); }
std::shared_ptr<Module> make_hard_swish() { return function("hard_swish", ops::hard_swish); }
std::shared_ptr<Module> make_softmax(int axis) {
  return function(
      "softmax", [=](const Variable& x) { return ops::softmax(x, axis); }, fmt::format("axis {}", axis));
}
std::shared_ptr<Module> make_log_softmax(int axis) {
  return function(
      "log_softmax", [=](const Variable& x) { return ops::log_softmax(x, axis); },
      fmt::format("axis {}", axis));
}
std::shared_ptr<Module> make_dropout(double p) { return dropping("dropout", p, "", ops::dropout); }
std::shared_ptr<Module> make_channel_dropout(double p) {
  return dropping("channel_dropout", p, "", ops::channel_dropout);
}
std::shared_ptr<Module> make_drop_path(double p) { return dropping("drop_path", p, "", ops::drop_path); }
std::shared_ptr<Module> make_alpha_dropout(double p, bool channels) {
  return dropping(
      "alpha_dropout", p, channels ? ", channels" : "",
      [=](const Variable& x, double, bool training) { return ops::alpha_dropout(x, p, training, channels); });
}
std::shared_ptr<Module> make_drop_block(double p, std::int64_t block) {
  FQ_CHECK(block > 0 && block % 2 == 1, "drop_block", "a block of {}: use an odd number", block);
  return dropping(
      "drop_block", p, fmt::format(", block {}", block),
      [=](const Variable& x, double, bool training) { return ops::drop_block2d(x, p, block, training); });
}
std::shared_ptr<Module> make_flatten(int start_axis) {
  return function("flatten", [=](const Variable& x) { return ops::flatten(x, start_axis); });
}
std::shared_ptr<Module> make_reshape(Shape shape, bool whole) {
  auto text = to_string(shape);
  return function(
      "reshape",
      [shape = std::move(shape), whole](const Variable& x) {
        if (whole) return ops::reshape(x, shape);
        Shape full{x.dim(0)};
        full.insert(full.end(), shape.begin(), shape.end());
        return ops::reshape(x, full);
      },
      text);
}
std::shared_ptr<Module> make_transpose(std::vector<int> axes) {
  auto text = fmt::format("axes {}", fmt::join(axes, ", "));
  return function(
      "transpose", [axes = std::move(axes)](const Variable& x) { return ops::transpose(x, axes); }, text);
}
std::shared_ptr<Module> make_max_pool(ops::Pool2d options) {
  return function(
      "max_pool",
      [options](const Variable& x) {
        return detail::on_image(x, [&](const Variable& image) { return ops::max_pool2d(image, options); });
      },
      fmt::format("kernel {}x{}", options.kernel[0], options.kernel[1]));
}

std::shared_ptr<Module> make_adaptive_avg_pool(std::array<std::int64_t, 2> size) {
  return function(
      "adaptive_avg_pool",
      [size](const Variable& x) {
        return detail::on_image(x,
                                [&](const Variable& image) { return ops::adaptive_avg_pool2d(image, size); });
      },
      fmt::format("to {}x{}", size[0], size[1]));
}

std::shared_ptr<Module> make_max_pool3d(ops::Pool3d options) {
  return function(
      "max_pool", [options](const Variable& x) { return ops::max_pool3d(x, options); },
      fmt::format("kernel {}", fmt::join(options.kernel, "x")));
}

std::shared_ptr<Module> make_adaptive_avg_pool3d(std::array<std::int64_t, 3> size) {
  return function(
      "adaptive_avg_pool", [size](const Variable& x) { return ops::adaptive_avg_pool3d(x, size); },
      fmt::format("to {}", fmt::join(size, "x")));
}

}  // namespace fq
