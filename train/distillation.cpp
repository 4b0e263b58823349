#include "fakequant/train/distillation.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/ops/ops.h"

namespace fq {
namespace {

constexpr std::string_view kDistillation = "distillation";
constexpr int kClasses = 1;

/// The mean over rows of sum_c p_c (log p_c - log q_c), times the square of the temperature.
Variable divergence(const Variable& outputs, const Variable& teacher, double temperature) {
  const auto log_of = [&](const Variable& x) {
    return ops::log_softmax(ops::scale(x, 1 / temperature), kClasses);
  };
  const Variable log_p = log_of(teacher), distance = ops::sub(log_p, log_of(outputs));
  const double rows =
      static_cast<double>(log_p.tensor().numel()) / static_cast<double>(log_p.shape()[kClasses]);
  return ops::scale(ops::sum(ops::multiply(distance, ops::exp(log_p))), temperature * temperature / rows);
}

}  // namespace

const std::vector<std::string>& distillation_kinds() {
  static const std::vector<std::string> kinds{"kl", "mse"};
  return kinds;
}

void check(const DistillationOptions& o) {
  FQ_CHECK(std::ranges::find(distillation_kinds(), o.kind) != distillation_kinds().end(), kDistillation,
           "there is no kind '{}'{}", o.kind, detail::did_you_mean(o.kind, distillation_kinds()));
  FQ_CHECK(o.temperature > 0 && std::isfinite(o.temperature), kDistillation,
           "the temperature is {}: use more than 0", o.temperature);
  FQ_CHECK(o.weight >= 0 && o.weight <= 1, kDistillation, "the weight is {}: use 0 to 1", o.weight);
}

Variable distillation_loss(const Variable& outputs, const Tensor& teacher,
                           const DistillationOptions& options) {
  check(options);
  FQ_CHECK(outputs.defined() && teacher.defined() && outputs.shape() == teacher.shape(), kDistillation,
           "the outputs are {}, those of the teacher {}: give a teacher of the same outputs",
           outputs.defined() ? to_string(outputs.shape()) : "undefined", teacher.describe());
  const Variable y = outputs.as_float();
  const Variable wanted(teacher.to(y.tensor().dtype()).to(y.device()));
  if (options.kind == "mse") return ops::mse_loss(y, wanted);
  FQ_CHECK(y.rank() > kClasses, kDistillation,
           "the outputs are {}: kl is for [N, C, ..], use mse for numbers", to_string(y.shape()));
  return divergence(y, wanted, options.temperature);
}

}  // namespace fq
