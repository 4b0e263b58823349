#include "fakequant/layers/model/merge.h"

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/pool.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/layers/modules/detail/apply_to_image.h"

namespace fq {
namespace {

void check_two(const std::vector<Variable>& inputs, std::string_view function) {
  FQ_CHECK(inputs.size() == 2, function, "{} inputs: use two", inputs.size());
}

}  // namespace

Variable Add::forward(const std::vector<Variable>& inputs) {
  check_two(inputs, "add");
  return ops::add(inputs[0], inputs[1]);
}

Variable Multiply::forward(const std::vector<Variable>& inputs) {
  check_two(inputs, "multiply");
  return ops::multiply(inputs[0], inputs[1]);
}

Variable Concat::forward(const std::vector<Variable>& inputs) { return ops::concat(inputs, axis_); }

std::string AvgPool2d::describe() const {
  return fmt::format("kernel {}x{}", options_.kernel[0], options_.kernel[1]);
}

Variable AvgPool2d::forward(const Variable& x) {
  return detail::apply_to_image(x, [&](const Variable& image) { return ops::avg_pool2d(image, options_); });
}

std::string AvgPool3d::describe() const { return fmt::format("kernel {}", fmt::join(options_.kernel, "x")); }

Variable AvgPool3d::forward(const Variable& x) { return ops::avg_pool3d(x, options_); }

Variable GlobalAvgPool2d::forward(const Variable& x) {
  if (x.defined() && x.rank() == 5) return ops::global_avg_pool3d(x);
  return detail::apply_to_image(x, ops::global_avg_pool2d);
}

}  // namespace fq
