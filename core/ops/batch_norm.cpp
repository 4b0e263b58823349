
#include <algorithm>

#include "fakequant/core/ops/detail/batch_norm_rows.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/norm.h"

namespace fq::ops {
namespace {

using detail::NormNumbers;
using detail::NormRows;

constexpr std::string_view kBatchNorm = "batch_norm";

/// Back to x's own shape; 4-D stays channels_last.
Tensor outer_shape(const Tensor& y, const Shape& shape) {
  return detail::is_channels_inner(shape) ? y : y.to(Layout::row_major).reshape(shape);
}

void check_channels(const Tensor& tensor, std::int64_t channels, std::string_view what) {
  FQ_CHECK(!tensor.defined() || tensor.shape() == Shape{channels}, kBatchNorm,
           "{} is {}, the input has {} channels: give [{}]", what, to_string(tensor.shape()), channels,
           channels);
}

/// dx, dgamma, dbeta.
std::vector<Tensor> gradients(const Tensor& dy, const NormRows& x, const Tensor& gamma,
                              const NormNumbers& numbers) {
  const std::int64_t channels = x.channels();
  const Device device = dy.device();
  const Tensor center = numbers.center();
  Tensor sums = Tensor::empty({2, channels}, DType::f64, device);
  detail::run(device, &detail::Kernels::gradient_sums, dy, x.values, center, sums);
  Tensor coefficients = Tensor::empty({3, channels}, dy.dtype(), device);
  Tensor dgamma = Tensor::empty({channels}, dy.dtype(), device), dbeta = detail::empty_like(dgamma);
  const detail::BatchNormBackward back{.grid = x.grid(),
                                       .gamma = {gamma, 1.0},
                                       .inverse = {numbers.inverse, 1.0},
                                       .sums = {sums, channels},
                                       .rows = std::max(1.0, static_cast<double>(x.count())),
                                       .of_batch = numbers.of_batch,
                                       .coefficients = {coefficients, channels},
                                       .dgamma = {dgamma, channels},
                                       .dbeta = {dbeta, channels}};
  detail::run(device, &detail::Kernels::backward_numbers, back, channels, device);
  Tensor dx = detail::gradient_like(dy);
  detail::run(device, &detail::Kernels::normalize_backward, dy, x.values, center, coefficients, dx);
  return {dx, dgamma, dbeta};
}

Tensor normalized(const NormRows& x, const NormNumbers& numbers) {
  Tensor y = detail::empty_like(x.values);
  detail::run(y.device(), &detail::Kernels::normalize, x.values, numbers.coefficients, y);
  return y;
}

Accumulator normalized_sums(const NormRows& x, const NormNumbers& numbers) {
  const auto row = [&](const Tensor& rows, std::int64_t i) {
    return rows.slice(i, i + 1).reshape({x.channels()});
  };
  if (numbers.folded.defined())
    return {NormalizedSums{x.values, row(numbers.folded, 0), row(numbers.folded, 1), 1, numbers.bias_codes}};
  return {NormalizedSums{x.values, row(numbers.coefficients, 1), row(numbers.coefficients, 2)}};
}

/// The inputs checked: either `sums` or `floats` are read; undefined gamma and beta stay so.
struct Inputs {
  Variable x;
  const ProductSums* sums;
  Tensor floats;
  detail::Floats gamma, beta;
  Tensor mean, variance;  // running

  /// The last two for whoever traces.
  [[nodiscard]] std::vector<Variable> variables() const {
    std::vector<Variable> all{x, gamma.variable, beta.variable};
    if (recorder() != nullptr && mean.defined()) all.insert(all.end(), {Variable(mean), Variable(variance)});
    return all;
  }
  [[nodiscard]] NormRows rows() const { return sums != nullptr ? NormRows::of(*sums) : NormRows::of(floats); }
  [[nodiscard]] const ProductOrigin* origin() const { return sums != nullptr ? sums->origin.get() : nullptr; }
};

Inputs read(const Variable& x, bool folded) {
  if (const ProductSums* sums = folded ? detail::foldable_sums(x) : nullptr;
      sums != nullptr || (sums = detail::normalizable_sums(x)) != nullptr)
    return {x, sums, Tensor::empty({0}, DType::f32, x.device()), {}, {}, {}, {}};
  auto floats = detail::floats(x, kBatchNorm);
  return {floats.variable, nullptr, floats.tensor, {}, {}, {}, {}};
}

Inputs checked(const Variable& x, const Variable& gamma, const Variable& beta, const Tensor& mean,
               const Tensor& variance, bool training, bool folded) {
  FQ_CHECK(x.defined(), kBatchNorm, "the input is undefined");
  const Shape shape = x.shape();
  FQ_CHECK(shape.size() >= 2 && shape.size() <= 5, kBatchNorm,
           "the input is {}: give [N, C], [N, C, L], [N, C, H, W] or [N, C, D, H, W]", to_string(shape));
  Inputs in = read(x, folded);
  if (gamma.defined()) in.gamma = detail::floats_like(gamma, in.floats, kBatchNorm);
  if (beta.defined()) in.beta = detail::floats_like(beta, in.floats, kBatchNorm);
  check_channels(in.gamma.tensor, shape[1], "gamma");
  check_channels(in.beta.tensor, shape[1], "beta");
  check_channels(mean, shape[1], "the running mean");
  check_channels(variance, shape[1], "the running variance");
  in.mean = mean;
  in.variance = variance;
  for (const Tensor& running : {mean, variance})
    FQ_CHECK(!running.defined() || x.device().is_meta() || running.device() == x.device(), kBatchNorm,
             "the running statistics are {}, the input is on {}: use one device", running.describe(),
             to_string(x.device()));
  FQ_CHECK(training || (mean.defined() && variance.defined()), kBatchNorm,
           "evaluation needs the running mean and variance: give both, or training = true");
  return in;
}

Value value_of(const Inputs& in, const NormRows& rows, const NormNumbers& numbers) {
  if (rows.are_sums()) return normalized_sums(rows, numbers);
  return outer_shape(normalized(rows, numbers), in.x.shape());
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta, Tensor running_mean,
                    Tensor running_var, bool training, double momentum, double eps, bool in_layer) {
  const bool folded = in_layer && !training;
  const Inputs in = checked(x, gamma, beta, running_mean, running_var, training, folded);
  auto attributes = detail::traced([&] {
    return Attributes{{"training", training}, {"momentum", momentum}, {"eps", eps}};
  });
  const NormRows rows = in.rows();
  const auto numbers = NormNumbers::of(rows, in.gamma.tensor, in.beta.tensor,
                                       {std::move(running_mean), std::move(running_var), training, momentum,
                                        eps, folded ? in.origin() : nullptr});
  const auto backward = [saved = detail::Saved(rows.values), rows_with = NormRows{{}, rows.bias, rows.scale},
                         saved_gamma = detail::Saved(in.gamma.tensor), numbers,
                         shape = in.x.shape()](const Tensor& dy) {
    const NormRows saved_rows{detail::channels_inner(saved.get()), rows_with.bias, rows_with.scale};
    auto out = gradients(detail::is_channels_inner(shape) ? dy : detail::channels_inner(dy), saved_rows,
                         saved_gamma.get(), numbers);
    out[0] = outer_shape(out[0], shape);
    return out;
  };
  return detail::record(kBatchNorm, value_of(in, rows, numbers), in.variables(), backward,
                        std::move(attributes));
}

}  // namespace fq::ops
