#include "fakequant/core/ops/norm.h"

#include <algorithm>
#include <memory>

#include "fakequant/core/detail/device_traits.h"
#include "fakequant/core/ops/detail/deferred_operators.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

constexpr std::string_view kLayerNorm = "layer_norm";

/// Converts x to floats, unless its values can wait for their reader.
detail::Floats rows_of(const Variable& x, std::string_view op) {
  if (x.defined() && detail::defers_norm(x)) return {x, {}};
  return detail::floats(x, op);
}

/// Returns a parameter of the given shape. Undefined ones stay undefined.
detail::Floats parameter(const Variable& p, const detail::Floats& x, const Shape& shape,
                         std::string_view what, std::string_view op) {
  if (!p.defined()) return {};
  auto out = x.tensor.defined() ? detail::matching_floats(p, x.tensor, op) : detail::floats(p, op);
  FQ_CHECK(x.tensor.defined() || (out.tensor.dtype() == DType::f32 && p.device() == x.variable.device()), op,
           "{} is {}, the input f32 on {}: dtype and device must agree", what, out.tensor.describe(),
           to_string(x.variable.device()));
  FQ_CHECK(out.tensor.shape() == shape, op, "{} is {}, it must be {}", what, to_string(out.tensor.shape()),
           to_string(shape));
  return out;
}

/// Returns the last `axes` axes of x.
Shape normalized_axes(const Shape& x, int axes, std::string_view op) {
  const int rank = static_cast<int>(x.size());
  FQ_CHECK(axes >= 1 && axes <= rank, op, "{} axes of {} cannot be normalized: use 1 to {}", axes,
           to_string(x), rank);
  return {x.end() - axes, x.end()};
}

/// Computes rows at once: row-major x becomes y, with its numbers.
Tensor normalized(const detail::Floats& x, const detail::RowNorm& norm, detail::RowNumbers& numbers) {
  const Tensor rows = x.tensor.to(Layout::row_major);
  const std::int64_t count = norm.length == 0 ? 0 : rows.numel() / norm.length;
  Tensor y = detail::empty_like(rows);
  numbers.x.emplace(x.variable);
  numbers.inverse = Tensor::empty({count}, y.dtype(), y.device());
  if (norm.rms) {
    detail::run(y.device(), &detail::Kernels::rms_norm, rows, norm.length, norm.gamma.get(), norm.eps, y,
                numbers.inverse);
    return y;
  }
  numbers.mean = detail::empty_like(numbers.inverse);
  detail::run(y.device(), &detail::Kernels::layer_norm, rows, norm.length, norm.gamma.get(), norm.beta.get(),
              norm.eps, y, numbers.mean, numbers.inverse);
  return y;
}

/// Returns the gradients of x, gamma and, for layer norm, beta. The kernels compute the mask of dy. On a GPU
/// they also add the gradients that other readers of x have left.
std::vector<detail::PendingGradient> norm_gradients(detail::BackwardCall& call, const detail::RowNorm& norm,
                                                    const detail::RowNumbers& numbers, const Shape& gamma,
                                                    const Shape& beta) {
  detail::compute_unread(numbers);
  const Tensor x = numbers.x->get().to(Layout::row_major);
  detail::PendingGradient& dy = call.dy;
  if (dy.scale || dy.activation) dy.evaluate();
  detail::NormGradient out{dy.values, dy.mask, {}, {}};
  const Device device = out.dy.device();
  if (detail::device_traits(device).launches) out.sum = call.take_sum(0, out.dy);
  out.dx = out.sum.defined() ? detail::gradient_buffer(out.sum) : detail::empty_like(out.dy);
  const auto sums_over_rows = [&](const Shape& shape) {
    return shape.empty() ? Tensor() : Tensor::empty(shape, out.dy.dtype(), device);
  };
  Tensor dgamma = sums_over_rows(gamma), dbeta = sums_over_rows(beta);
  if (norm.rms)
    detail::run(device, &detail::Kernels::rms_norm_backward, out, x, norm.length, norm.gamma.get(),
                numbers.inverse, dgamma);
  else
    detail::run(device, &detail::Kernels::layer_norm_backward, out, x, norm.length, norm.gamma.get(),
                numbers.mean, numbers.inverse, dgamma, dbeta);
  return {out.dx, dgamma, dbeta};
}

/// Records the normalization of rows. Backward reads x again instead of the normalized values.
Variable record_norm(std::string_view op, const detail::Floats& x, const detail::RowNorm& norm,
                     const Variable& gamma, const Variable& beta, Attributes attributes) {
  auto numbers = std::make_shared<detail::RowNumbers>();
  Value y = x.tensor.defined() ? Value(normalized(x, norm, *numbers))
                               : Value(detail::deferred_norm(x.variable, norm, numbers));
  const auto gradient_shape = [](const Variable& p) { return p.requires_grad() ? p.shape() : Shape{}; };
  const auto backward = [=, gamma_shape = gradient_shape(gamma),
                         beta_shape = gradient_shape(beta)](detail::BackwardCall& call) {
    return norm_gradients(call, norm, *numbers, gamma_shape, beta_shape);
  };
  return detail::record(op, std::move(y), {x.variable, gamma, beta}, backward, std::move(attributes));
}

}  // namespace

Variable layer_norm(const Variable& input, const Variable& gamma, const Variable& beta, int axes,
                    double eps) {
  const auto x = rows_of(input, kLayerNorm);
  const Shape shape = normalized_axes(x.variable.shape(), axes, kLayerNorm);
  const auto g = parameter(gamma, x, shape, "gamma", kLayerNorm),
             b = parameter(beta, x, shape, "beta", kLayerNorm);
  const detail::RowNorm norm{numel(shape), detail::Saved(g.tensor), detail::Saved(b.tensor), eps, false};
  return record_norm(kLayerNorm, x, norm, g.variable, b.variable, detail::traced([&] {
                       return Attributes{{"axes", std::int64_t{axes}}, {"eps", eps}};
                     }));
}

namespace {

/// Returns p [C] in a shape that broadcasts against the channels of x.
Variable along_channels(const Variable& p, const Shape& x) {
  Shape shape(x.size() - 1, 1);
  shape[0] = x[1];
  return reshape(p, shape);
}

Variable normalized_groups(std::string_view op, const Variable& input, std::int64_t groups,
                           const Variable& gamma, const Variable& beta, double eps, Attributes attributes) {
  const auto x = detail::floats(input, op);
  const Shape shape = x.tensor.shape();
  FQ_CHECK(shape.size() >= 2, op, "the input is {}: use [N, C, ..]", to_string(shape));
  FQ_CHECK(groups >= 1 && shape[1] % groups == 0, op, "groups is {}: it must divide the {} channels", groups,
           shape[1]);
  const Variable g = parameter(gamma, x, {shape[1]}, "gamma", op).variable,
                 b = parameter(beta, x, {shape[1]}, "beta", op).variable;
  return detail::composite(op, {x.variable, g, b}, std::move(attributes), [&] {
    const std::int64_t length = numel(Shape(shape.begin() + 1, shape.end())) / groups;
    // Each group of a sample is one row of a layer norm. gamma and beta differ per channel, not per row.
    const Variable rows = reshape(x.variable, {shape[0] * groups, length});
    Variable y = reshape(layer_norm(rows, {}, {}, 1, eps), shape);
    if (g.defined()) y = multiply(y, along_channels(g, shape));
    return b.defined() ? add(y, along_channels(b, shape)) : y;
  });
}

}  // namespace

Variable rms_norm(const Variable& input, const Variable& gamma, int axes, double eps) {
  constexpr std::string_view op = "rms_norm";
  const auto x = rows_of(input, op);
  const Shape shape = normalized_axes(x.variable.shape(), axes, op);
  const auto own = parameter(gamma, x, shape, "gamma", op);
  auto attributes = detail::traced([&] { return Attributes{{"axes", std::int64_t{axes}}, {"eps", eps}}; });
  const Variable g = own.variable;
  if (detail::device_traits(x.variable.device()).launches && x.variable.layout() == Layout::row_major) {
    const detail::RowNorm norm{numel(shape), detail::Saved(own.tensor), {}, eps, true};
    return record_norm(op, x, norm, g, {}, std::move(attributes));
  }
  // y = x / sqrt(mean(x^2) + eps) * gamma, composed of operators that have gradients.
  return detail::composite(op, {x.variable, g}, std::move(attributes), [&] {
    std::vector<int> last;
    for (int axis = x.tensor.rank() - axes; axis < x.tensor.rank(); ++axis) last.push_back(axis);
    const Variable square = mean(multiply(x.variable, x.variable), last, true);
    const Variable y = div(x.variable, sqrt(shift(square, eps)));
    return g.defined() ? multiply(y, g) : y;
  });
}

Variable group_norm(const Variable& x, std::int64_t groups, const Variable& gamma, const Variable& beta,
                    double eps) {
  return normalized_groups("group_norm", x, groups, gamma, beta, eps, detail::traced([&] {
                             return Attributes{{"groups", groups}, {"eps", eps}};
                           }));
}

Variable instance_norm(const Variable& x, const Variable& gamma, const Variable& beta, double eps) {
  FQ_CHECK(x.defined() && x.rank() >= 2, "instance_norm", "the input is {}: use [N, C, ..]",
           x.defined() ? to_string(x.shape()) : "undefined");
  return normalized_groups("instance_norm", x, std::max<std::int64_t>(x.dim(1), 1), gamma, beta, eps,
                           detail::traced([&] {
                             return Attributes{{"eps", eps}};
                           }));
}

Variable local_response_norm(const Variable& input, std::int64_t size, double alpha, double beta, double k) {
  constexpr std::string_view op = "local_response_norm";
  const auto x = detail::floats(input, op);
  FQ_CHECK(x.tensor.rank() >= 2, op, "the input is {}: use [N, C, ..]", to_string(x.tensor.shape()));
  FQ_CHECK(size >= 1, op, "size is {}: use 1 or more channels", size);
  auto attributes = detail::traced([&] {
    return Attributes{{"size", size}, {"alpha", alpha}, {"beta", beta}, {"k", k}};
  });
  return detail::composite(op, {x.variable}, std::move(attributes), [&] {
    const std::int64_t channels = x.tensor.dim(1);
    // alpha / size is part of the weights: the window computes the scaled sum of squares directly.
    detail::AxisMix window;
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t first = std::max<std::int64_t>(0, c - (size - 1) / 2);
      for (std::int64_t i = first; i <= std::min(channels - 1, c + size / 2); ++i)
        window.add(i, alpha / static_cast<double>(size));
      window.end_row();
    }
    const auto squares = detail::floats(multiply(x.variable, x.variable), op);
    return div(x.variable, pow(shift(detail::record_mix(op, squares, 1, std::move(window)), k), beta));
  });
}

}  // namespace fq::ops
