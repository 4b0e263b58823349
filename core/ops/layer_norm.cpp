
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/norm.h"

namespace fq::ops {
namespace {

constexpr std::string_view kLayerNorm = "layer_norm";

/// A parameter of the shape of the normalized axes; undefined ones stay so.
detail::Floats parameter(const Variable& p, const Tensor& x, const Shape& shape, std::string_view what) {
  if (!p.defined()) return {};
  auto out = detail::floats_like(p, x, kLayerNorm);
  FQ_CHECK(out.tensor.shape() == shape, kLayerNorm, "{} is {}, the normalized axes are {}", what,
           to_string(out.tensor.shape()), to_string(shape));
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
  const std::int64_t length = numel(normalized), count = length == 0 ? 0 : rows.numel() / length;
  Tensor mean = Tensor::empty({count}, y.dtype(), y.device()), inverse = detail::empty_like(mean);
  detail::run(y.device(), &detail::Kernels::layer_norm, rows, length, g.tensor, b.tensor, eps, y, mean,
              inverse);
  const auto backward = [saved = detail::SavedFloats(x.variable), saved_gamma = detail::Saved(g.tensor), mean,
                         inverse, normalized](const Tensor& dy) {
    Tensor dx = detail::empty_like(dy);
    Tensor dgamma = Tensor::empty(normalized, DType::f64, dy.device()), dbeta = detail::empty_like(dgamma);
    detail::run(dx.device(), &detail::Kernels::layer_norm_backward, dy, saved.get().to(Layout::row_major),
                saved_gamma.get(), mean, inverse, dx, dgamma, dbeta);
    return std::vector<Tensor>{dx, dgamma.to(dx.dtype()), dbeta.to(dx.dtype())};
  };
  return detail::record(kLayerNorm, y, {x.variable, g.variable, b.variable}, backward, detail::traced([&] {
                          return Attributes{{"axes", std::int64_t{axes}}, {"eps", eps}};
                        }));
}

}  // namespace fq::ops
