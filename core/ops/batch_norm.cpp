#include "fakequant/core/cpu/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/ops/norm.h"
#include "fakequant/core/ops/operator.h"

namespace fq::ops {
namespace {

constexpr std::string_view op = "batch_norm";

/// Floats with channels innermost: [N, C] as it is, [N, C, L] as [N, C, 1, L] channels_last.
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

/// What is normalized, channels innermost: x = (values + bias[c]) * scale[c], or the values themselves where
/// scale is empty.
struct Rows {
  Tensor values;
  cpu::PerChannel bias, scale;

  [[nodiscard]] bool are_sums() const { return !scale.empty(); }
  [[nodiscard]] std::int64_t channels() const { return values.dim(1); }
  [[nodiscard]] std::int64_t count() const {
    return channels() == 0 ? 0 : values.numel() / channels();
  }
  [[nodiscard]] double scale_of(std::size_t c) const { return are_sums() ? scale[c] : 1.0; }

  /// A mean of x as one of the values, and back.
  [[nodiscard]] cpu::PerChannel to_values(cpu::PerChannel mean) const {
    for (std::size_t c = 0; are_sums() && c < mean.size(); ++c) mean[c] = mean[c] / scale[c] - bias[c];
    return mean;
  }
  [[nodiscard]] cpu::Moments moments() const {
    cpu::Moments m = cpu::moments(values, channels());
    for (std::size_t c = 0; are_sums() && c < m.mean.size(); ++c) {
      m.mean[c] = (m.mean[c] + bias[c]) * scale[c];
      m.variance[c] *= scale[c] * scale[c];
    }
    return m;
  }
};

/// The sums of products that a whole layer gives, channels innermost and axis 1.
const ProductSums* normalizable_sums(const Variable& x) {
  const Accumulator* accumulator = x.accumulator();
  if (accumulator == nullptr || accumulator->relu) return nullptr;
  const auto* sums = std::get_if<ProductSums>(&accumulator->value);
  if (sums == nullptr || sums->axis != 1) return nullptr;
  const bool inner = sums->sums.layout() == Layout::channels_last || sums->sums.rank() == 2;
  return inner ? sums : nullptr;
}

Rows rows_of(const Tensor& floats) { return {channels_inner(floats), {}, {}}; }
Rows rows_of(const ProductSums& x) {
  const std::int64_t channels = x.sums.dim(1);
  Rows rows{x.sums, values_or(x.bias, channels, 0.0), x.scale.to(DType::f64).to_vector<double>()};
  if (x.scale.numel() == 1) rows.scale.assign(static_cast<std::size_t>(channels), rows.scale[0]);
  return rows;
}

/// What backward needs besides x and gamma; inverse = 1 / sqrt(var + eps).
struct Statistics {
  cpu::PerChannel mean, inverse;
  bool of_batch;
};

Statistics statistics(const Rows& x, Tensor& mean, Tensor& variance, bool training, double momentum,
                      double eps) {
  const std::int64_t rows = x.count();
  Statistics out{{}, {}, training};
  cpu::Moments m;
  if (training) {
    FQ_CHECK(rows != 1, op, "training on {} has one value a channel: give a larger batch",
             to_string(x.values.shape()));
    m = x.moments();
    if (rows > 1) {
      update(mean, m.mean, 1.0, momentum);
      update(variance, m.variance, static_cast<double>(rows) / static_cast<double>(rows - 1), momentum);
    }
  } else {
    m = {values_or(mean, x.channels(), 0.0), values_or(variance, x.channels(), 1.0)};
  }
  out.mean = std::move(m.mean);
  out.inverse = std::move(m.variance);
  for (auto& v : out.inverse) v = 1.0 / std::sqrt(v + eps);
  return out;
}

/// dx, dgamma, dbeta.
std::vector<Tensor> gradients(const Tensor& dy, const Rows& x, const Tensor& gamma, const Statistics& s) {
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

cpu::PerChannel factors(const Tensor& gamma, const Statistics& s) {
  cpu::PerChannel factor = values_or(gamma, static_cast<std::int64_t>(s.mean.size()), 1.0);
  for (std::size_t c = 0; c < factor.size(); ++c) factor[c] *= s.inverse[c];
  return factor;
}

Tensor normalized(const Rows& x, const Tensor& gamma, const Tensor& beta, const Statistics& s) {
  Tensor y = detail::empty_like(x.values);
  cpu::normalize(x.values, s.mean, factors(gamma, s), values_or(beta, x.channels(), 0.0), y);
  return y;
}

Accumulator normalized_sums(const Rows& x, const Tensor& gamma, const Tensor& beta, const Statistics& s) {
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

  [[nodiscard]] std::vector<Variable> variables() const { return {x, gamma.variable, beta.variable}; }
  [[nodiscard]] Rows rows() const { return sums != nullptr ? rows_of(*sums) : rows_of(floats); }
};

Inputs read(const Variable& x) {
  if (const ProductSums* sums = normalizable_sums(x))
    return {x, sums, Tensor::empty({0}, DType::f32, x.device()), {}, {}};
  auto floats = detail::floats(x, op);
  return {floats.variable, nullptr, floats.tensor, {}, {}};
}

Inputs checked(const Variable& x, const Variable& gamma, const Variable& beta, const Tensor& mean,
               const Tensor& variance, bool training) {
  FQ_CHECK(x.defined(), op, "the input is undefined");
  const Shape shape = x.shape();
  FQ_CHECK(shape.size() >= 2 && shape.size() <= 4, op,
           "the input is {}: give [N, C], [N, C, L] or [N, C, H, W]", to_string(shape));
  Inputs in = read(x);
  if (gamma.defined()) in.gamma = detail::floats_like(gamma, in.floats, op);
  if (beta.defined()) in.beta = detail::floats_like(beta, in.floats, op);
  check_channels(in.gamma.tensor, shape[1], "gamma");
  check_channels(in.beta.tensor, shape[1], "beta");
  check_channels(mean, shape[1], "the running mean");
  check_channels(variance, shape[1], "the running variance");
  FQ_CHECK(training || (mean.defined() && variance.defined()), op,
           "evaluation needs the running mean and variance: give both, or training = true");
  return in;
}

Value on_meta(const Inputs& in) {
  if (in.sums == nullptr)
    return detail::empty_like(in.floats,
                              in.floats.rank() == 4 ? Layout::channels_last : Layout::row_major);
  const Tensor numbers = Tensor::empty({in.x.dim(1)}, DType::f32, in.x.device());
  return Accumulator{NormalizedSums{in.sums->sums, numbers, numbers}};
}

/// Keeps and gives what backward does, without numbers.
Backward backward_on_meta(const Inputs& in) {
  const Tensor rows = in.sums != nullptr ? in.sums->sums : channels_inner(in.floats);
  return [rows, channels = in.x.dim(1)](const Tensor& dy) {
    const auto numbers = [&] { return Tensor::empty({channels}, dy.dtype(), dy.device()); };
    return std::vector<Tensor>{detail::gradient_like(dy), numbers(), numbers()};
  };
}

Value value_of(const Inputs& in, const Rows& rows, const Statistics& s) {
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
    return detail::record(op, on_meta(in), in.variables(), backward_on_meta(in), std::move(attributes));
  const Rows rows = in.rows();
  const Statistics s = statistics(rows, running_mean, running_var, training, momentum, eps);
  const auto backward = [saved = detail::Saved(rows.values), rows_with = Rows{{}, rows.bias, rows.scale},
                         saved_gamma = detail::Saved(in.gamma.tensor), s,
                         shape = in.x.shape()](const Tensor& dy) {
    const Rows saved_rows{saved.get(), rows_with.bias, rows_with.scale};
    auto out = shape.size() == 3 ? gradients(channels_inner(dy), saved_rows, saved_gamma.get(), s)
                                 : gradients(dy, saved_rows, saved_gamma.get(), s);
    out[0] = outer_shape(out[0], shape);
    return out;
  };
  return detail::record(op, value_of(in, rows, s), in.variables(), backward, std::move(attributes));
}

}  // namespace fq::ops
