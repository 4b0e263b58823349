#include "fakequant/core/ops/norm.h"

#include <algorithm>

#include "fakequant/core/detail/device_traits.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

constexpr std::string_view kLayerNorm = "layer_norm";

/// Returns a parameter of the shape of the normalized axes. Undefined ones stay undefined.
detail::Floats parameter(const Variable& p, const Tensor& x, const Shape& shape, std::string_view what) {
  if (!p.defined()) return {};
  auto out = detail::matching_floats(p, x, kLayerNorm);
  FQ_CHECK(out.tensor.shape() == shape, kLayerNorm, "{} is {}, the normalized axes are {}", what,
           to_string(out.tensor.shape()), to_string(shape));
  return out;
}

/// Returns the gradients of a normalization of row-major x. Its kernels compute the mask of dy. On a GPU they
/// also add the gradients that other readers of x have left.
detail::NormGradient norm_gradient(detail::BackwardCall& call) {
  detail::PendingGradient& dy = call.dy;
  if (dy.scale || dy.activation) dy.evaluate();
  detail::NormGradient out{dy.values, dy.mask, {}, {}};
  if (detail::device_traits(out.dy.device()).launches) out.sum = call.take_sum(0, out.dy);
  out.dx = out.sum.defined() ? detail::gradient_buffer(out.sum) : detail::empty_like(out.dy);
  return out;
}

}  // namespace

Variable layer_norm(const Variable& input, const Variable& gamma, const Variable& beta, int axes,
                    double eps) {
  const auto x = detail::floats(input, kLayerNorm);
  const Shape shape = x.tensor.shape();
  FQ_CHECK(axes >= 1 && axes <= x.tensor.rank(), kLayerNorm,
           "{} axes of {} cannot be normalized: use 1 to {}", axes, to_string(shape), x.tensor.rank());
  const Shape normalized(shape.end() - axes, shape.end());
  const auto g = parameter(gamma, x.tensor, normalized, "gamma"),
             b = parameter(beta, x.tensor, normalized, "beta");
  const Tensor rows = x.tensor.to(Layout::row_major);
  Tensor y = detail::empty_like(rows);
  // x: [count, length], row-major. mean and inverse (1 / standard deviation) are [count] and saved for
  // backward, which reads x again instead of the normalized values.
  const std::int64_t length = numel(normalized), count = length == 0 ? 0 : rows.numel() / length;
  Tensor mean = Tensor::empty({count}, y.dtype(), y.device()), inverse = detail::empty_like(mean);
  detail::run(y.device(), &detail::Kernels::layer_norm, rows, length, g.tensor, b.tensor, eps, y, mean,
              inverse);
  const auto backward = [saved = detail::SavedFloats(x.variable), saved_gamma = detail::Saved(g.tensor), mean,
                         inverse, length, with_gamma = g.variable.requires_grad(),
                         with_beta = b.variable.requires_grad(), normalized](detail::BackwardCall& call) {
    detail::NormGradient gradient = norm_gradient(call);
    const Tensor& dy = gradient.dy;
    Tensor dgamma = with_gamma ? Tensor::empty(normalized, dy.dtype(), dy.device()) : Tensor(),
           dbeta = with_beta ? Tensor::empty(normalized, dy.dtype(), dy.device()) : Tensor();
    detail::run(dy.device(), &detail::Kernels::layer_norm_backward, gradient,
                saved.get().to(Layout::row_major), length, saved_gamma.get(), mean, inverse, dgamma, dbeta);
    return std::vector<detail::PendingGradient>{gradient.dx, dgamma, dbeta};
  };
  return detail::record(kLayerNorm, y, {x.variable, g.variable, b.variable}, backward, detail::traced([&] {
                          return Attributes{{"axes", std::int64_t{axes}}, {"eps", eps}};
                        }));
}

namespace {

void check_shape(const Tensor& p, const Shape& shape, std::string_view what, std::string_view op) {
  FQ_CHECK(p.shape() == shape, op, "{} is {}, it must be {}", what, to_string(p.shape()), to_string(shape));
}

/// Returns a parameter of the given shape. Undefined ones stay undefined.
detail::Floats parameter(const Variable& p, const Tensor& x, const Shape& shape, std::string_view what,
                         std::string_view op) {
  if (!p.defined()) return {};
  auto read = detail::matching_floats(p, x, op);
  check_shape(read.tensor, shape, what, op);
  return read;
}

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
  const Variable g = parameter(gamma, x.tensor, {shape[1]}, "gamma", op).variable,
                 b = parameter(beta, x.tensor, {shape[1]}, "beta", op).variable;
  return detail::composite(op, {x.variable, g, b}, std::move(attributes), [&] {
    const std::int64_t length = numel(Shape(shape.begin() + 1, shape.end())) / groups;
    // Each group of a sample is one row of a layer norm. gamma and beta differ per channel, not per row.
    const Variable rows = reshape(x.variable, {shape[0] * groups, length});
    Variable y = reshape(layer_norm(rows, {}, {}, 1, eps), shape);
    if (g.defined()) y = multiply(y, along_channels(g, shape));
    return b.defined() ? add(y, along_channels(b, shape)) : y;
  });
}

/// Computes RMS normalization of row-major x in one kernel each way. The formula is the one composed below.
Variable fused_rms_norm(std::string_view op, const detail::Floats& x, const detail::Floats& gamma,
                        std::int64_t length, double eps, Attributes attributes) {
  const Tensor& rows = x.tensor;
  const std::int64_t count = length == 0 ? 0 : rows.numel() / length;
  Tensor y = detail::empty_like(rows), roots = Tensor::empty({count}, y.dtype(), y.device());
  detail::run(y.device(), &detail::Kernels::rms_norm, rows, length, gamma.tensor, eps, y, roots);
  const auto backward = [saved = detail::SavedFloats(x.variable), saved_gamma = detail::Saved(gamma.tensor),
                         roots, length,
                         with_gamma = gamma.variable.requires_grad()](detail::BackwardCall& call) {
    detail::NormGradient gradient = norm_gradient(call);
    const Tensor& g = saved_gamma.get();
    Tensor dgamma = with_gamma ? detail::empty_like(g) : Tensor();
    detail::run(gradient.dy.device(), &detail::Kernels::rms_norm_backward, gradient,
                saved.get().to(Layout::row_major), length, g, roots, dgamma);
    return std::vector<detail::PendingGradient>{gradient.dx, dgamma};
  };
  return detail::record(op, y, {x.variable, gamma.variable}, backward, std::move(attributes));
}

}  // namespace

Variable rms_norm(const Variable& input, const Variable& gamma, int axes, double eps) {
  constexpr std::string_view op = "rms_norm";
  const auto x = detail::floats(input, op);
  const Shape shape = x.tensor.shape();
  FQ_CHECK(axes >= 1 && axes <= x.tensor.rank(), op, "{} axes of {} cannot be normalized: use 1 to {}", axes,
           to_string(shape), x.tensor.rank());
  const Shape normalized(shape.end() - axes, shape.end());
  const auto own = parameter(gamma, x.tensor, normalized, "gamma", op);
  auto attributes = detail::traced([&] { return Attributes{{"axes", std::int64_t{axes}}, {"eps", eps}}; });
  if (detail::device_traits(x.tensor.device()).launches && x.tensor.layout() == Layout::row_major)
    return fused_rms_norm(op, x, own, numel(normalized), eps, std::move(attributes));
  const Variable g = own.variable;
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
