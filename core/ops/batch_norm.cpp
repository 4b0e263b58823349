#include "fakequant/core/cpu/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/ops/norm.h"
#include "fakequant/core/ops/operator.h"

namespace fq::ops {
namespace {

constexpr std::string_view op = "batch_norm";

/// x with channels innermost: [N, C] as it is, [N, C, L] as [N, C, 1, L] channels_last.
Tensor channels_inner(const Tensor& x) {
  if (x.rank() == 2) return x;
  if (x.rank() == 4) return x.to(Layout::channels_last);
  return x.reshape({x.dim(0), x.dim(1), 1, x.dim(2)}).to(Layout::channels_last);
}

/// Back to x's own shape; 4-D stays channels_last.
Tensor outer_shape(const Tensor& y, const Shape& shape) {
  return shape.size() == 3 ? y.to(Layout::row_major).reshape(shape) : y;
}

cpu::PerChannel values_or(const Tensor& tensor, std::int64_t channels, double otherwise) {
  return tensor.defined() ? tensor.to(DType::f64).to_vector<double>()
                          : cpu::PerChannel(static_cast<std::size_t>(channels), otherwise);
}

Tensor to_tensor(const cpu::PerChannel& values, DType dtype) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())}).to(dtype);
}

/// running = (1 - momentum) * running + momentum * batch
void update(Tensor& running, const cpu::PerChannel& batch, double factor, double momentum) {
  if (!running.defined()) return;
  detail::visit_float(running.dtype(), op, [&]<class T>(T) {
    T* values = running.mutable_data<T>();
    for (std::size_t c = 0; c < batch.size(); ++c)
      values[c] =
          static_cast<T>((1.0 - momentum) * static_cast<double>(values[c]) + momentum * factor * batch[c]);
  });
}

void check_channels(const Tensor& tensor, std::int64_t channels, std::string_view what) {
  FQ_CHECK(!tensor.defined() || tensor.shape() == Shape{channels}, op,
           "{} is {}, the input has {} channels: give [{}]", what, to_string(tensor.shape()), channels,
           channels);
}

/// What backward needs besides x and gamma.
struct Statistics {
  cpu::PerChannel mean, inverse;  // inverse = 1 / sqrt(var + eps)
  bool of_batch;
};

Statistics statistics(const Tensor& x, Tensor& mean, Tensor& variance, bool training, double momentum,
                      double eps) {
  const std::int64_t channels = x.dim(1), rows = channels == 0 ? 0 : x.numel() / channels;
  Statistics out{{}, {}, training};
  cpu::Moments m;
  if (training) {
    FQ_CHECK(rows != 1, op, "training on {} has one value a channel: give a larger batch",
             to_string(x.shape()));
    m = cpu::moments(x, rows, channels);
    if (rows > 1) {
      update(mean, m.mean, 1.0, momentum);
      update(variance, m.variance, static_cast<double>(rows) / static_cast<double>(rows - 1), momentum);
    }
  } else {
    m = {values_or(mean, channels, 0.0), values_or(variance, channels, 1.0)};
  }
  out.mean = std::move(m.mean);
  out.inverse = std::move(m.variance);
  for (auto& v : out.inverse) v = 1.0 / std::sqrt(v + eps);
  return out;
}

/// dx, dgamma, dbeta.
std::vector<Tensor> gradients(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Statistics& s) {
  const auto sums = cpu::gradient_sums(dy, x, s.mean);
  const std::size_t channels = s.mean.size();
  const double rows = std::max(1.0, static_cast<double>(x.numel()) / static_cast<double>(channels));
  cpu::PerChannel factor = values_or(gamma, static_cast<std::int64_t>(channels), 1.0);
  cpu::PerChannel slope(channels, 0.0), shift(channels, 0.0), dgamma(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    factor[c] *= s.inverse[c];
    dgamma[c] = sums.product[c] * s.inverse[c];
    if (!s.of_batch) continue;
    slope[c] = -factor[c] * s.inverse[c] * dgamma[c] / rows;
    shift[c] = -factor[c] * sums.dy[c] / rows;
  }
  Tensor dx = detail::empty_like(x);
  cpu::normalize_backward(dy, x, s.mean, factor, slope, shift, dx);
  return {dx, to_tensor(dgamma, x.dtype()), to_tensor(sums.dy, x.dtype())};
}

/// The inputs read and checked; undefined gamma and beta stay so.
struct Inputs {
  detail::Floats x, gamma, beta;

  [[nodiscard]] std::vector<Variable> variables() const {
    return {x.variable, gamma.variable, beta.variable};
  }
};

Inputs checked(const Variable& x, const Variable& gamma, const Variable& beta, const Tensor& mean,
               const Tensor& variance, bool training) {
  Inputs in{detail::floats(x, op), {}, {}};
  const Shape& shape = in.x.tensor.shape();
  FQ_CHECK(shape.size() >= 2 && shape.size() <= 4, op,
           "the input is {}: give [N, C], [N, C, L] or [N, C, H, W]", to_string(shape));
  if (gamma.defined()) in.gamma = detail::floats_like(gamma, in.x.tensor, op);
  if (beta.defined()) in.beta = detail::floats_like(beta, in.x.tensor, op);
  check_channels(in.gamma.tensor, shape[1], "gamma");
  check_channels(in.beta.tensor, shape[1], "beta");
  check_channels(mean, shape[1], "the running mean");
  check_channels(variance, shape[1], "the running variance");
  FQ_CHECK(training || (mean.defined() && variance.defined()), op,
           "evaluation needs the running mean and variance: give both, or training = true");
  return in;
}

Tensor normalized(const Tensor& rows, const Inputs& in, const Statistics& s) {
  cpu::PerChannel factor = values_or(in.gamma.tensor, rows.dim(1), 1.0);
  for (std::size_t c = 0; c < factor.size(); ++c) factor[c] *= s.inverse[c];
  Tensor y = detail::empty_like(rows);
  cpu::normalize(rows, s.mean, factor, values_or(in.beta.tensor, rows.dim(1), 0.0), y);
  return y;
}

Tensor on_meta(const Tensor& x) {
  return detail::empty_like(x, x.rank() == 4 ? Layout::channels_last : Layout::row_major);
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta, Tensor running_mean,
                    Tensor running_var, bool training, double momentum, double eps) {
  const Inputs in = checked(x, gamma, beta, running_mean, running_var, training);
  auto attributes = detail::traced([&] {
    return Attributes{{"training", training}, {"momentum", momentum}, {"eps", eps}};
  });
  if (!detail::computes(in.x.tensor))
    return detail::record(op, on_meta(in.x.tensor), in.variables(), {}, std::move(attributes));
  const Tensor rows = channels_inner(in.x.tensor);
  const Statistics s = statistics(rows, running_mean, running_var, training, momentum, eps);
  const auto backward = [saved = detail::Saved(rows), saved_gamma = detail::Saved(in.gamma.tensor), s,
                         shape = in.x.tensor.shape()](const Tensor& dy) {
    auto out = gradients(channels_inner(dy), saved.get(), saved_gamma.get(), s);
    out[0] = outer_shape(out[0], shape);
    return out;
  };
  return detail::record(op, outer_shape(normalized(rows, in, s), in.x.tensor.shape()), in.variables(),
                        backward, std::move(attributes));
}

}  // namespace fq::ops
