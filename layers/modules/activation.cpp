#include "fakequant/layers/modules/activation.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/layers/modules/detail/apply_to_image.h"

namespace fq {
namespace {

template <class F>
// Makes a layer of op(x), which does not depend on the mode.
std::shared_ptr<Module> function(std::string type, F op, std::string description = {}) {
  return std::make_shared<Function>(std::move(type), std::move(description),
                                    [op = std::move(op)](const Variable& x, bool) { return op(x); });
}

/// Makes a layer that calls op(x, p, training).
template <class F>
std::shared_ptr<Module> dropping(std::string type, double p, const std::string& more, F op) {
  FQ_CHECK(p >= 0 && p < 1, type, "p = {}: use 0 <= p < 1", p);
  return std::make_shared<Function>(std::move(type), fmt::format("p {}{}", p, more),
                                    [=](const Variable& x, bool training) { return op(x, p, training); });
}

// Rows with `run` are operators of tensors and numbers alone. They need no class of their own.
std::vector<std::string> plain_functions() {
  std::vector<std::string> names;
  for (const auto& row : operator_table())
    if (row.run != nullptr) names.emplace_back(row.name);
  return names;
}

std::string option_names(const OperatorSchema& row) {
  std::vector<std::string_view> names;
  for (const auto& option : row.options()) names.push_back(option.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

/// Converts an attribute to the number of the operator table.
double option_number(const Attribute& given, const OperatorOption& option, std::string_view op) {
  // A choice is stored as the index of its name.
  if (const auto* text = std::get_if<std::string>(&given); text != nullptr && option.is_choice())
    return option.index(*text, op);
  const auto* integer = std::get_if<std::int64_t>(&given);
  const auto* number = std::get_if<double>(&given);
  FQ_CHECK(!option.is_choice() && (integer != nullptr || (number != nullptr && !option.is_integer)), op,
           "the option '{}' has another type: use {}", option.name,
           option.is_choice()  ? "a text"
           : option.is_integer ? "an integer"
                               : "a number");
  const double value = integer != nullptr ? static_cast<double>(*integer) : *number;
  FQ_CHECK(value >= option.low && value <= option.high, op, "the option '{}' is {}: use {} to {}",
           option.name, value, option.low, option.high);
  return value;
}

/// Returns the options as text: "slope 0.1", "low -1, high 1".
std::string describe(const OperatorSchema& row, const std::vector<double>& values) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const OperatorOption& option = row.options()[i];
    parts.push_back(option.is_choice() ? fmt::format("{} {}", option.name,
                                                     option.choices[static_cast<std::size_t>(values[i])])
                                       : fmt::format("{} {}", option.name, values[i]));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

Function::Function(std::string type, std::string description, Operator op)
    : type_(std::move(type)), description_(std::move(description)), op_(std::move(op)) {}

FunctionOfSeveral::FunctionOfSeveral(std::string type, std::string description, Operator op)
    : type_(std::move(type)), description_(std::move(description)), op_(std::move(op)) {}

PRelu::PRelu(std::int64_t slopes) {
  FQ_CHECK(slopes > 0, "prelu", "{} slopes: use 1, or one for each channel", slopes);
  weight_ = add_parameter("weight", Tensor::full({slopes}, 0.25));
}
std::string PRelu::describe() const { return fmt::format("{} slopes", weight_.dim(0)); }
Variable PRelu::forward(const Variable& x) { return ops::prelu(x, weight_); }

Parameter::Parameter(Shape shape, bool trained, bool repeat) : repeat_(repeat) {
  // The leading axis is the batch, so that the value broadcasts to x.
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
std::shared_ptr<Module> make_function(std::string_view op, const Attributes& options) {
  const OperatorSchema* row = operator_schema(op);
  FQ_CHECK(row != nullptr && row->run != nullptr, "make_function", "op: '{}' is not a plain function{}", op,
           detail::did_you_mean(op, plain_functions()));
  std::vector<double> values;
  // A required option has NaN as fallback, which the loop below reports.
  for (const auto& option : row->options()) values.push_back(option.fallback);
  for (const auto& [name, value] : options) {
    const auto found = std::ranges::find(row->options(), name, &OperatorOption::name);
    FQ_CHECK(found != row->options().end(), op, "the option '{}' is unknown, it has {}", name,
             option_names(*row));
    values[static_cast<std::size_t>(found - row->options().begin())] = option_number(value, *found, op);
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    FQ_CHECK(!std::isnan(values[i]), op, "the option '{}' is missing", row->options()[i].name);
  return make_function(*row, std::move(values));
}

std::shared_ptr<Module> make_function(const OperatorSchema& row, std::vector<double> options) {
  std::string type(row.name), text = describe(row, options);
  if (row.inputs == 1)
    return std::make_shared<Function>(std::move(type), std::move(text),
                                      // The table lives as long as the program, so a reference to its row is
                                      // safe.
                                      [&row, options = std::move(options)](const Variable& x, bool) {
                                        return row.run(row, {&x, 1}, options);
                                      });
  return std::make_shared<FunctionOfSeveral>(
      std::move(type), std::move(text), [&row, options = std::move(options)](const std::vector<Variable>& x) {
        FQ_CHECK(std::ssize(x) == row.inputs, row.name, "{} inputs: use {}", x.size(), row.inputs);
        return row.run(row, x, options);
      });
}

std::shared_ptr<Module> make_relu() { return make_function("relu"); }
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
        // The batch size is known only when the layer runs.
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
        // A sequence [N, C, L] is pooled as an image of height 1.
        return detail::apply_to_image(x,
                                      [&](const Variable& image) { return ops::max_pool2d(image, options); });
      },
      fmt::format("kernel {}x{}", options.kernel[0], options.kernel[1]));
}

std::shared_ptr<Module> make_adaptive_avg_pool(std::array<std::int64_t, 2> size) {
  return function(
      "adaptive_avg_pool",
      [size](const Variable& x) {
        return detail::apply_to_image(
            x, [&](const Variable& image) { return ops::adaptive_avg_pool2d(image, size); });
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
