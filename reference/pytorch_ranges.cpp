#include <numeric>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/format.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/tape.h"
#include "fakequant/reference/detail/broadcast.h"
#include "fakequant/reference/detail/clipped.h"
#include "fakequant/reference/detail/rounding.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/kernels/kernels.h"
#include "fakequant/reference/pytorch_quantization.h"

namespace fq::pytorch_quantization {
namespace {

using detail::ReferenceKernels;

constexpr const char* kAffine = "fake_affine_tensor_quant";
constexpr const char* kClip = "clip";

// Type of the result. PyTorch does not promote x for operands of rank 0; other bounds are f32.
DType result_type(const Tensor& x, const Tensor& lower, const Tensor& upper) {
  return lower.rank() == 0 && upper.rank() == 0 ? x.dtype() : DType::f32;
}

// Bounds of fake_affine_tensor_quant, f32, and the block of x that shares each.
struct Range {
  Tensor min, max;
  Shape block;
};

Range checked_range(const Tensor& x, const Amax& min_range, const Amax& max_range) {
  detail::check_floats(x, kAffine);
  FQ_CHECK(min_range.defined() && max_range.defined() && min_range.shape() == max_range.shape(), kAffine,
           "min_range and max_range must both be given and have one shape");
  return {min_range.tensor(), max_range.tensor(),
          detail::broadcast_block(x.shape(), min_range.shape(), kAffine)};
}

Tensor fake_quantized(const Tensor& x, const Range& range, int num_bits) {
  // -2^(b-1) .. 2^(b-1) - 1, so that upper - lower = 2^b - 1 steps cover the range.
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

// Bounds of one shape in f32, rounded as the comparison with x rounds them, and the type of the result.
struct Bounds {
  Tensor lower, upper;
  DType result;
};

// Repeats a bound of one element to the shape of the other bound.
Tensor stretched(const Tensor& bound, const Tensor& other) {
  if (bound.numel() != 1 || other.numel() == 1) return bound;
  return Tensor::full(other.shape(), bound.item());
}

Bounds clip_bounds(const Tensor& x, const Tensor& lower, const Tensor& upper) {
  detail::check_floats(x, kClip);
  FQ_CHECK(lower.defined() && upper.defined(), kClip, "a bound is missing: use clip_value_min and _max");
  const Tensor low = detail::comparison_bound(x.dtype(), lower),
               high = detail::comparison_bound(x.dtype(), upper);
  Bounds out{stretched(low, high), stretched(high, low), result_type(x, lower, upper)};
  FQ_CHECK(out.lower.numel() == out.upper.numel(), kClip,
           "the bounds are {} and {}: use one shape to both, or one element to one", to_string(lower.shape()),
           to_string(upper.shape()));
  // The counts are equal here; the shapes may still differ in axes of size 1.
  const Tensor& wider = out.lower.rank() < out.upper.rank() ? out.upper : out.lower;
  const Shape shape = wider.shape();
  detail::check_broadcast(x.shape(), shape, kClip);
  out.lower = out.lower.reshape(shape);
  out.upper = out.upper.reshape(shape);
  return out;
}

Tensor clipped(const Tensor& x, const Bounds& b) {
  Tensor y = Tensor::empty(x.shape(), DType::f32, x.device());
  detail::run(x.device(), &ReferenceKernels::clip, x.to(Layout::row_major).to(DType::f32), b.lower, b.upper,
              y);
  return y.to(b.result).to(x.layout());
}

Tensor clip_gradient(const Tensor& x, const Tensor& dy, const Tensor& lower, const Tensor& upper) {
  Tensor mask = Tensor::empty(x.shape(), DType::u1, x.device());
  detail::run(x.device(), &ReferenceKernels::fill_range_mask, x.to(Layout::row_major), lower, upper, mask);
  return apply_mask(dy.to(DType::f32), mask).to(x.dtype());
}

// Returns the sums of dy where x <= bound, or x >= bound with `above`, in shape and type of the input `like`.
Tensor bound_gradient(const Tensor& x, const Tensor& dy, const Tensor& bound, const Tensor& like,
                      bool above) {
  const auto values = [](const Tensor& t) { return t.to(Layout::row_major).to(DType::f32); };
  Tensor sums = Tensor::empty(bound.shape(), DType::f64, x.device());
  detail::run(x.device(), &ReferenceKernels::sum_beyond, values(x), values(dy), bound, above, sums);
  // The bound was stretched to the other one's shape: its gradient is the total.
  if (like.numel() == 1 && sums.numel() != 1) {
    const auto each = sums.to_vector<double>();
    sums = Tensor::full({}, std::accumulate(each.begin(), each.end(), 0.0), DType::f64, x.device());
  }
  return sums.reshape(like.shape()).to(like.dtype());
}

namespace host {

Tensor fake_affine_tensor_quant(const Tensor& x, const Amax& min_range, const Amax& max_range, int num_bits) {
  return fake_quantized(x, checked_range(x, min_range, max_range), num_bits);
}

Variable fake_affine_tensor_quant(const Variable& x, const Amax& min_range, const Amax& max_range,
                                  int num_bits) {
  const Variable v = x.as_float();
  const Range range = checked_range(v.tensor(), min_range, max_range);
  // The mask is computed in the forward pass, so that backward keeps one bit per element instead of x.
  Tensor y = fake_quantized(v.tensor(), range, num_bits), mask;
  if (detail::needs_grad({v})) {
    const Tensor lower = detail::comparison_bound(v.tensor().dtype(), range.min);
    const Tensor upper = detail::comparison_bound(v.tensor().dtype(), range.max);
    const auto *low = lower.data<float>(), *high = upper.data<float>();
    mask = detail::make_mask(v.tensor(), range.block, [low, high](float e, auto j) {
      return scalar::mask_closed(e, low[j], high[j]);
    });
  }
  return detail::record_clipped(kAffine, v, std::move(y), std::move(mask));
}

}  // namespace host
}  // namespace

Tensor fake_affine_tensor_quant(const Tensor& x, const Amax& min_range, const Amax& max_range, int num_bits) {
  return detail::through_host<Tensor>(host::fake_affine_tensor_quant, x, min_range, max_range, num_bits);
}

Variable fake_affine_tensor_quant(const Variable& x, const Amax& min_range, const Amax& max_range,
                                  int num_bits) {
  return detail::through_host<Variable>(host::fake_affine_tensor_quant, x, min_range, max_range, num_bits);
}

Tensor clip(const Tensor& x, const Amax& clip_value_min, const Amax& clip_value_max) {
  return clipped(x, clip_bounds(x, clip_value_min.tensor(), clip_value_max.tensor()));
}

Variable clip(const Variable& x, const Variable& clip_value_min, const Variable& clip_value_max) {
  FQ_CHECK(clip_value_min.defined() && clip_value_max.defined(), kClip,
           "a bound is missing: use clip_value_min and _max");
  const Variable v = x.as_float(), low = clip_value_min.as_float(), high = clip_value_max.as_float();
  const Bounds b = clip_bounds(v.tensor(), low.tensor(), high.tensor());
  Tensor y = clipped(v.tensor(), b);
  return detail::record(kClip, std::move(y), {v, low, high},
                        [v, low, high, saved = detail::Saved(v.tensor()), lower = detail::Saved(b.lower),
                         upper = detail::Saved(b.upper)](const Tensor& dy) {
                          std::vector<Tensor> out(3);
                          if (v.requires_grad())
                            out[0] = clip_gradient(saved.get(), dy, lower.get(), upper.get());
                          if (low.requires_grad())
                            out[1] = bound_gradient(saved.get(), dy, lower.get(), low.tensor(), false);
                          if (high.requires_grad())
                            out[2] = bound_gradient(saved.get(), dy, upper.get(), high.tensor(), true);
                          return out;
                        });
}

}  // namespace fq::pytorch_quantization
