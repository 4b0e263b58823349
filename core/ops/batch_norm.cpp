#include <algorithm>

#include "fakequant/core/ops/batch_norm_rows.h"
#include "fakequant/core/ops/norm.h"
#include "fakequant/core/ops/operator.h"

namespace fq::ops {
namespace {

using detail::BatchStatistics;
using detail::NormRows;
using detail::values_or;

constexpr std::string_view kBatchNorm = "batch_norm";

/// Back to x's own shape; 4-D stays channels_last.
Tensor outer_shape(const Tensor& y, const Shape& shape) {
  return shape.size() == 3 ? y.to(Layout::row_major).reshape(shape) : y;
}

Tensor to_tensor(const cpu::PerChannel& values, DType dtype) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())}).to(dtype);
}

void check_channels(const Tensor& tensor, std::int64_t channels, std::string_view what) {
  FQ_CHECK(!tensor.defined() || tensor.shape() == Shape{channels}, kBatchNorm,
           "{} is {}, the input has {} channels: give [{}]", what, to_string(tensor.shape()), channels,
           channels);
}

/// dx, dgamma, dbeta.
std::vector<Tensor> gradients(const Tensor& dy, const NormRows& x, const Tensor& gamma,
                              const BatchStatistics& s) {
  const cpu::PerChannel mean = x.to_values(s.mean);
  const auto sums = cpu::gradient_sums(dy, x.values, mean);
  const std::size_t channels = s.mean.size();
  const double rows = std::max(1.0, static_cast<double>(x.count()));
  cpu::PerChannel factor = values_or(gamma, x.channels(), 1.0);
  cpu::PerChannel slope(channels, 0.0), shift(channels, 0.0), dgamma(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    factor[c] *= s.inverse[c];
    dgamma[c] = sums.product[c] * x.scale_of(c) * s.inverse[c];
    if (!s.of_batch) continue;
    slope[c] = -factor[c] * s.inverse[c] * dgamma[c] / rows * x.scale_of(c);
    shift[c] = -factor[c] * sums.dy[c] / rows;
  }
  Tensor dx = detail::gradient_like(dy);
  cpu::normalize_backward(dy, x.values, mean, factor, slope, shift, dx);
  return {dx, to_tensor(dgamma, dy.dtype()), to_tensor(sums.dy, dy.dtype())};
}

cpu::PerChannel factors(const Tensor& gamma, const BatchStatistics& s) {
  cpu::PerChannel factor = values_or(gamma, static_cast<std::int64_t>(s.mean.size()), 1.0);
  for (std::size_t c = 0; c < factor.size(); ++c) factor[c] *= s.inverse[c];
  return factor;
}

Tensor normalized(const NormRows& x, const Tensor& gamma, const Tensor& beta, const BatchStatistics& s) {
  Tensor y = detail::empty_like(x.values);
  cpu::normalize(x.values, s.mean, factors(gamma, s), values_or(beta, x.channels(), 0.0), y);
  return y;
}

Accumulator normalized_sums(const NormRows& x, const Tensor& gamma, const Tensor& beta,
                            const BatchStatistics& s) {
  cpu::PerChannel factor = factors(gamma, s), shift = values_or(beta, x.channels(), 0.0);
  for (std::size_t c = 0; c < factor.size(); ++c) {
    shift[c] += (x.bias[c] * x.scale[c] - s.mean[c]) * factor[c];
    factor[c] *= x.scale[c];
  }
  return {NormalizedSums{x.values, to_tensor(factor, DType::f32), to_tensor(shift, DType::f32)}};
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
};

Inputs read(const Variable& x) {
  if (const ProductSums* sums = detail::normalizable_sums(x))
    return {x, sums, Tensor::empty({0}, DType::f32, x.device()), {}, {}, {}, {}};
  auto floats = detail::floats(x, kBatchNorm);
  return {floats.variable, nullptr, floats.tensor, {}, {}, {}, {}};
}

Inputs checked(const Variable& x, const Variable& gamma, const Variable& beta, const Tensor& mean,
               const Tensor& variance, bool training) {
  FQ_CHECK(x.defined(), kBatchNorm, "the input is undefined");
  const Shape shape = x.shape();
  FQ_CHECK(shape.size() >= 2 && shape.size() <= 4, kBatchNorm,
           "the input is {}: give [N, C], [N, C, L] or [N, C, H, W]", to_string(shape));
  Inputs in = read(x);
  if (gamma.defined()) in.gamma = detail::floats_like(gamma, in.floats, kBatchNorm);
  if (beta.defined()) in.beta = detail::floats_like(beta, in.floats, kBatchNorm);
  check_channels(in.gamma.tensor, shape[1], "gamma");
  check_channels(in.beta.tensor, shape[1], "beta");
  check_channels(mean, shape[1], "the running mean");
  check_channels(variance, shape[1], "the running variance");
  in.mean = mean;
  in.variance = variance;
  FQ_CHECK(training || (mean.defined() && variance.defined()), kBatchNorm,
           "evaluation needs the running mean and variance: give both, or training = true");
  return in;
}

Value on_meta(const Inputs& in) {
  if (in.sums == nullptr)
    return detail::empty_like(in.floats, in.floats.rank() == 4 ? Layout::channels_last : Layout::row_major);
  const Tensor numbers = Tensor::empty({in.x.dim(1)}, DType::f32, in.x.device());
  return Accumulator{NormalizedSums{in.sums->sums, numbers, numbers}};
}

/// Keeps and gives what backward does, without numbers.
Backward backward_on_meta(const Inputs& in) {
  const Tensor rows = in.sums != nullptr ? in.sums->sums : detail::channels_inner(in.floats);
  return [rows, channels = in.x.dim(1)](const Tensor& dy) {
    const auto numbers = [&] { return Tensor::empty({channels}, dy.dtype(), dy.device()); };
    return std::vector<Tensor>{detail::gradient_like(dy), numbers(), numbers()};
  };
}

Value value_of(const Inputs& in, const NormRows& rows, const BatchStatistics& s) {
  if (rows.are_sums()) return normalized_sums(rows, in.gamma.tensor, in.beta.tensor, s);
  return outer_shape(normalized(rows, in.gamma.tensor, in.beta.tensor, s), in.x.shape());
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta, Tensor running_mean,
                    Tensor running_var, bool training, double momentum, double eps) {
  const Inputs in = checked(x, gamma, beta, running_mean, running_var, training);
  auto attributes = detail::traced([&] {
    return Attributes{{"training", training}, {"momentum", momentum}, {"eps", eps}};
  });
  if (!in.x.device().is_cpu())
    return detail::record(kBatchNorm, on_meta(in), in.variables(), backward_on_meta(in),
                          std::move(attributes));
  const NormRows rows = in.rows();
  const BatchStatistics s = BatchStatistics::of(rows, running_mean, running_var, training, momentum, eps);
  const auto backward = [saved = detail::Saved(rows.values), rows_with = NormRows{{}, rows.bias, rows.scale},
                         saved_gamma = detail::Saved(in.gamma.tensor), s,
                         shape = in.x.shape()](const Tensor& dy) {
    const NormRows saved_rows{saved.get(), rows_with.bias, rows_with.scale};
    auto out = shape.size() == 3 ? gradients(detail::channels_inner(dy), saved_rows, saved_gamma.get(), s)
                                 : gradients(dy, saved_rows, saved_gamma.get(), s);
    out[0] = outer_shape(out[0], shape);
    return out;
  };
  return detail::record(kBatchNorm, value_of(in, rows, s), in.variables(), backward, std::move(attributes));
}

}  // namespace fq::ops
