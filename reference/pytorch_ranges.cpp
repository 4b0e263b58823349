#include <array>
#include <functional>
#include <numeric>
#include <type_traits>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/format.h"
#include "fakequant/core/numerics/formulas.h"
#include "fakequant/core/tape.h"
#include "fakequant/reference/detail/clipped.h"
#include "fakequant/reference/detail/stepped.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/kernels/cuda/clip.h"
#include "fakequant/reference/pytorch_quantization.h"

namespace fq::pytorch_quantization {
namespace {

constexpr const char* kAffine = "fake_affine_tensor_quant";
constexpr const char* kClip = "clip";

/// Of x's type where both bounds have rank 0, else f32.
DType result_type(const Tensor& x, const Tensor& lower, const Tensor& upper) {
  return lower.rank() == 0 && upper.rank() == 0 ? x.dtype() : DType::f32;
}

struct Range {
  Tensor min, max;
  Shape block;
};

Range range_of(const Tensor& x, const Amax& min_range, const Amax& max_range) {
  detail::check_floats(x, kAffine);
  FQ_CHECK(min_range.defined() && max_range.defined() && min_range.shape() == max_range.shape(), kAffine,
           "min_range and max_range must both be given and have one shape");
  return {min_range.tensor(), max_range.tensor(),
          detail::broadcast_block(x.shape(), min_range.shape(), kAffine)};
}

Tensor fake_quantized(const Tensor& x, const Range& range, int num_bits) {
  const float lower = static_cast<float>(Format(IntFormat{num_bits}).integer().lower()), upper = -lower - 1;
  Tensor y = Tensor::empty(x.shape(), result_type(x, range.min, range.max), x.device());
  if (x.device().is_meta()) return y.to(x.layout());
  std::vector<float> steps, zeros;
  for (std::int64_t j = 0; j < range.min.numel(); ++j) {
    const float min = range.min.data<float>()[j], max = range.max.data<float>()[j];
    steps.push_back((max - min) / (upper - lower));
    zeros.push_back(scalar::range_zero(min, steps.back(), lower));
  }
  const float *s = steps.data(), *z = zeros.data();
  detail::visit_rounding(y.dtype(), [&]<class T>(T) {
    using V = detail::Step<T>;
    const auto quantized = [=](float v, float step, float zero) {
      return static_cast<float>(scalar::range_fake_quant(V{v}, V{step}, V{zero}, V{lower}, V{upper}));
    };
    detail::map_blocks(x.to(Layout::row_major), range.block, y,
                       [=](const float* in, float* out, auto count, auto j, auto step) {
                         for (std::int64_t k = 0; k < count; ++k)
                           out[k] = quantized(in[k], s[j + k * step], z[j + k * step]);
                       });
  });
  return y.to(x.layout());
}

/// Bounds of one shape, f32, as x is compared with them.
struct Bounds {
  Tensor lower, upper;
  Shape block;
  DType result;
};

Tensor stretched(const Tensor& bound, const Tensor& other) {
  if (bound.numel() != 1 || other.numel() == 1) return bound;
  return Tensor::full(other.shape(), bound.item());
}

Bounds bounds_of(const Tensor& x, const Tensor& lower, const Tensor& upper) {
  detail::check_floats(x, kClip);
  FQ_CHECK(lower.defined() && upper.defined(), kClip, "a bound is missing: give clip_value_min and _max");
  const Tensor low = detail::compared_with(x.dtype(), lower), high = detail::compared_with(x.dtype(), upper);
  Bounds out{stretched(low, high), stretched(high, low), {}, result_type(x, lower, upper)};
  FQ_CHECK(out.lower.numel() == out.upper.numel(), kClip,
           "the bounds are {} and {}: give one shape to both, or one element to one",
           to_string(lower.shape()), to_string(upper.shape()));
  const Tensor& wider = out.lower.rank() < out.upper.rank() ? out.upper : out.lower;
  const Shape shape = wider.shape();
  out.block = detail::broadcast_block(x.shape(), shape, kClip);
  out.lower = out.lower.reshape(shape);
  out.upper = out.upper.reshape(shape);
  return out;
}

Tensor clipped_on_gpu(const Tensor& x, const Bounds& b) {
  Tensor y = Tensor::empty(x.shape(), DType::f32, x.device());
  cuda::clip(x.to(Layout::row_major).to(DType::f32), b.lower, b.upper, y);
  return y.to(b.result).to(x.layout());
}

Tensor clipped(const Tensor& x, const Bounds& b) {
  Tensor y = Tensor::empty(x.shape(), b.result, x.device());
  if (x.device().is_meta()) return y.to(x.layout());
  if (x.device().is_cuda()) return clipped_on_gpu(x, b);
  const auto *lower = b.lower.data<float>(), *upper = b.upper.data<float>();
  detail::map_blocks(x.to(Layout::row_major), b.block, y,
                     [&](const float* in, float* out, auto count, auto j, auto step) {
                       for (std::int64_t k = 0; k < count; ++k)
                         out[k] = scalar::clip_to(in[k], lower[j + k * step], upper[j + k * step]);
                     });
  return y.to(x.layout());
}

Tensor clip_gradient(const Tensor& x, const Tensor& dy, const Tensor& lower, const Tensor& upper,
                     const Shape& block) {
  if (x.device().is_cuda())
    return apply_mask(dy.to(DType::f32), cuda::mask_between(x, lower, upper)).to(x.dtype());
  const auto *low = lower.data<float>(), *high = upper.data<float>();
  const Tensor mask =
      detail::mask_where(x, block, [=](float e, auto j) { return scalar::mask_open(e, low[j], high[j]); });
  return apply_mask(dy.to(DType::f32), mask).to(x.dtype());
}

/// The sum of g where selected(v, bound), in double, in as many lanes as vectors like.
template <class F>
double selected_sum(const float* v, const float* g, std::int64_t count, float bound, F&& selected) {
  constexpr std::int64_t lanes = 8;
  std::array<double, lanes> sums{};
  std::int64_t k = 0;
  for (; k + lanes <= count; k += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane)
      sums[static_cast<std::size_t>(lane)] +=
          static_cast<double>(selected(v[k + lane], bound) ? g[k + lane] : 0.0f);
  for (; k < count; ++k) sums[0] += static_cast<double>(selected(v[k], bound) ? g[k] : 0.0f);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

template <class F>
Tensor bound_gradient(const Tensor& x, const Tensor& dy, const Tensor& bound, const Shape& block,
                      const Tensor& like, F selected);

/// Sums of several bounds go through the host.
template <class F>
Tensor bound_gradient_on_gpu(const Tensor& x, const Tensor& dy, const Tensor& bound, const Shape& block,
                             const Tensor& like, F selected) {
  const Device host = Device::cpu();
  if (bound.numel() != 1)
    return bound_gradient(x.to(host), dy.to(host), bound.to(host), block, like, selected).to(x.device());
  const auto values = [](const Tensor& t) { return t.to(Layout::row_major).to(DType::f32); };
  constexpr bool above = std::is_same_v<F, std::greater_equal<>>;
  return cuda::sum_beyond(values(x), values(dy), bound, above).reshape(like.shape()).to(like.dtype());
}

/// The sums of dy where selected(v, bound), in the shape and type of `like`.
template <class F>
Tensor bound_gradient(const Tensor& x, const Tensor& dy, const Tensor& bound, const Shape& block,
                      const Tensor& like, F selected) {
  if (x.device().is_cuda()) return bound_gradient_on_gpu(x, dy, bound, block, like, selected);
  std::vector<double> sums(static_cast<std::size_t>(bound.numel()));
  const auto* b = bound.data<float>();
  const Tensor grad = dy.to(Layout::row_major).to(DType::f32);
  const auto* g = grad.data<float>();
  detail::for_chunks(x.to(Layout::row_major), block,
                     [&](const float* v, auto begin, auto count, auto j, auto step) {
                       double* sum = sums.data() + j;
                       if (step == 0) *sum += selected_sum(v, g + begin, count, b[j], selected);
                       for (std::int64_t k = 0; k < count * step; ++k)
                         sum[k] += static_cast<double>(selected(v[k], b[j + k]) ? g[begin + k] : 0.0f);
                     });
  if (like.numel() == 1) sums = {std::accumulate(sums.begin(), sums.end(), 0.0)};
  return Tensor::from(sums, like.shape()).to(like.dtype());
}

}  // namespace

Tensor fake_affine_tensor_quant(const Tensor& x, const Amax& min_range, const Amax& max_range, int num_bits) {
  FQ_THROUGH_HOST(fake_affine_tensor_quant, x, min_range, max_range, num_bits);
  return fake_quantized(x, range_of(x, min_range, max_range), num_bits);
}

Variable fake_affine_tensor_quant(const Variable& x, const Amax& min_range, const Amax& max_range,
                                  int num_bits) {
  FQ_THROUGH_HOST(fake_affine_tensor_quant, x, min_range, max_range, num_bits);
  const Variable v = x.as_float();
  const Range range = range_of(v.tensor(), min_range, max_range);
  Tensor y = fake_quantized(v.tensor(), range, num_bits), mask;
  if (detail::needs_grad({v})) {
    const Tensor lower = detail::compared_with(v.tensor().dtype(), range.min);
    const Tensor upper = detail::compared_with(v.tensor().dtype(), range.max);
    const auto *low = lower.data<float>(), *high = upper.data<float>();
    mask = detail::mask_where(v.tensor(), range.block, [low, high](float e, auto j) {
      return scalar::mask_closed(e, low[j], high[j]);
    });
  }
  return detail::record_clipped(kAffine, v, std::move(y), std::move(mask));
}

Tensor clip(const Tensor& x, const Amax& clip_value_min, const Amax& clip_value_max) {
  return clipped(x, bounds_of(x, clip_value_min.tensor(), clip_value_max.tensor()));
}

Variable clip(const Variable& x, const Variable& clip_value_min, const Variable& clip_value_max) {
  FQ_CHECK(clip_value_min.defined() && clip_value_max.defined(), kClip,
           "a bound is missing: give clip_value_min and _max");
  const Variable v = x.as_float(), low = clip_value_min.as_float(), high = clip_value_max.as_float();
  const Bounds b = bounds_of(v.tensor(), low.tensor(), high.tensor());
  Tensor y = clipped(v.tensor(), b);
  return detail::record(
      kClip, std::move(y), {v, low, high},
      [v, low, high, block = b.block, saved = detail::Saved(v.tensor()), lower = detail::Saved(b.lower),
       upper = detail::Saved(b.upper)](const Tensor& dy) {
        std::vector<Tensor> out(3);
        if (v.requires_grad()) out[0] = clip_gradient(saved.get(), dy, lower.get(), upper.get(), block);
        if (low.requires_grad())
          out[1] = bound_gradient(saved.get(), dy, lower.get(), block, low.tensor(), std::less_equal<>());
        if (high.requires_grad())
          out[2] = bound_gradient(saved.get(), dy, upper.get(), block, high.tensor(), std::greater_equal<>());
        return out;
      });
}

}  // namespace fq::pytorch_quantization
