#include "fakequant/reference/pytorch_quantization.h"

#include <algorithm>
#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/format.h"
#include "fakequant/core/numerics/formulas.h"
#include "fakequant/core/tape.h"
#include "fakequant/reference/detail/broadcast_up.h"
#include "fakequant/reference/detail/clipped.h"
#include "fakequant/reference/kernels/cuda/fake_quant.h"

namespace fq::pytorch_quantization {
namespace {

constexpr const char* kCodes = "tensor_quant";
constexpr const char* kScale = "tensor_quant_scale";
constexpr const char* kLegacy = "legacy_fake_tensor_quant";

/// The smallest value; NaN where there is one.
float smallest(const Tensor& x) {
  if (x.device().is_cuda()) return cuda::smallest(x);
  float least = std::numeric_limits<float>::infinity();
  detail::for_chunks(x.to(Layout::row_major), x.shape(), [&](const float* v, auto, auto count, auto, auto) {
    for (std::int64_t k = 0; k < count; ++k) least = least < v[k] || scalar::is_nan_(least) ? least : v[k];
  });
  return least;
}

/// The numbers of one call: s to multiply by, 0 where amax is too small, and the scale that is given out.
struct Grid {
  std::vector<float> multiplier;
  Tensor scale;
  float lower, upper;
  Shape block;
};

void check_unsigned(const Tensor& x, const char* function) {
  FQ_CHECK(x.numel() > 0, function, "the input has no elements and the format is unsigned: use a signed one");
  if (x.device().is_meta()) return;
  const float least = smallest(x);
  FQ_CHECK(!(least < 0), function, "the input has {} and the format is unsigned: use a signed one", least);
}

/// x, repeated where amax has more ranges.
template <class X>
X against(const X& x, const Amax& amax, const char* function) {
  FQ_CHECK(amax.defined() && !amax.values().empty(), function,
           "amax is missing: give a number, a list or a tensor");
  return detail::broadcast_up(x, {amax.shape()}, function);
}

Grid grid_of(const Tensor& x, const Amax& amax, const IntFormat& format, const char* function) {
  detail::check_floats(x, function);
  if (format.is_unsigned) check_unsigned(x, function);
  const auto ranges = amax.values();
  const bool guard = std::ranges::none_of(ranges, scalar::is_nan_);
  const auto negative = std::ranges::find_if(ranges, [](float a) { return a < 0; });
  FQ_CHECK(!guard || negative == ranges.end(), function, "amax has {}: it must not be negative", *negative);
  Grid out{{},
           amax.tensor(),
           static_cast<float>(format.lower()),
           static_cast<float>(format.upper()),
           detail::broadcast_block(x.shape(), amax.shape(), function)};
  auto* scale = out.scale.mutable_data<float>();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    out.multiplier.push_back(scalar::modelopt_scale(ranges[i], out.upper, guard));
    scale[i] = scalar::modelopt_divisor(ranges[i], out.multiplier[i], guard);
  }
  return out;
}

/// y = f(code, j) rounded to `dtype`; codes in f32, j the number of the element's amax.
template <class F>
Tensor with_codes(const Tensor& x, const Grid& g, DType dtype, F&& f) {
  Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  if (x.device().is_meta()) return y.to(x.layout());
  const auto* s = g.multiplier.data();
  detail::map_blocks(x.to(Layout::row_major), g.block, y,
                     [&](const float* in, float* out, auto count, auto j, auto step) {
                       for (std::int64_t k = 0; k < count; ++k) {
                         const std::int64_t at = j + k * step;
                         out[k] = f(scalar::modelopt_code(in[k], s[at], g.lower, g.upper), at);
                       }
                     });
  return y.to(x.layout());
}

DType code_type(const Tensor& x, std::optional<DType> output_dtype) {
  if (!output_dtype) return x.dtype();
  FQ_CHECK(*output_dtype == DType::f32 || *output_dtype == DType::i32, kCodes,
           "codes of {}: ask for f32 or i32", name(*output_dtype));
  return *output_dtype;
}

void check_half(const Tensor& x, const Tensor& scale) {
  if (x.dtype() != DType::f16) return;
  const auto s = scale.to_vector<float>();
  if (std::ranges::any_of(s, scalar::is_nan_)) return;
  const float largest = *std::ranges::max_element(s);
  FQ_CHECK(largest <= 65504.0f, kCodes, "a scale is {}, too large for f16: give f32, or a larger amax",
           largest);
}

Variable accepting_gradient(Tensor scale, const Variable& x) {
  const Tensor like = x.tensor();
  return detail::record(kScale, std::move(scale), {x},
                        [shape = like.shape(), dtype = like.dtype(), device = like.device()](const Tensor&) {
                          return std::vector<Tensor>{Tensor::zeros(shape, dtype, device)};
                        });
}

Tensor legacy(const Tensor& x, const Amax& amax, const IntFormat& format) {
  const Grid g = grid_of(x, amax, format, kLegacy);
  if (x.device().is_cuda()) {
    Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device(), x.layout());
    cuda::fake_quant_integer(x, amax.tensor(), amax.tensor(), format, y, nullptr);
    return y;
  }
  const auto* scale = g.scale.data<float>();
  return with_codes(x, g, x.dtype(), [scale](float code, auto j) { return scalar::div_(code, scale[j]); });
}

}  // namespace

Quantized<Tensor> tensor_quant(const Tensor& input, const Amax& amax, int num_bits, bool is_unsigned,
                               bool narrow_range, std::optional<DType> output_dtype) {
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kCodes);
  const Tensor x = against(input, amax, kCodes);
  const Grid g = grid_of(x, amax, format, kCodes);
  const DType dtype = code_type(x, output_dtype);
  check_half(x, g.scale);
  const Tensor scale = g.scale.to(x.dtype());
  if (x.device().is_cuda()) {
    Tensor codes = Tensor::empty(x.shape(), DType::f32, x.device(), x.layout());
    cuda::integer_codes(x.to(DType::f32), amax.tensor(), format, codes);
    return {codes.to(dtype), scale.to(x.device())};
  }
  if (dtype == DType::i32) {
    const auto number = [](float code, auto) { return scalar::is_nan_(code) ? 0.0f : code; };
    return {with_codes(x, g, dtype, number), scale};
  }
  return {with_codes(x, g, dtype, [](float code, auto) { return code; }), scale};
}

Quantized<Variable> tensor_quant(const Variable& x, const Amax& amax, int num_bits, bool is_unsigned,
                                 bool narrow_range, std::optional<DType> output_dtype) {
  const Variable v = against(x.as_float(), amax, kCodes);
  auto [codes, scale] = tensor_quant(v.tensor(), amax, num_bits, is_unsigned, narrow_range, output_dtype);
  Tensor mask;
  if (detail::needs_grad({v})) mask = detail::within_amax(v.tensor(), amax.tensor(), kCodes);
  const auto range =
      detail::TracedRange::integer(amax, detail::integer_codes(num_bits, is_unsigned, narrow_range, kCodes));
  return {detail::record_clipped(kCodes, v, std::move(codes), std::move(mask), range),
          accepting_gradient(std::move(scale), v)};
}

Tensor legacy_fake_tensor_quant(const Tensor& x, const Amax& amax, int num_bits, bool is_unsigned,
                                bool narrow_range) {
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kLegacy);
  return legacy(against(x, amax, kLegacy), amax, format);
}

Variable legacy_fake_tensor_quant(const Variable& x, const Amax& amax, int num_bits, bool is_unsigned,
                                  bool narrow_range) {
  const IntFormat format = detail::integer_codes(num_bits, is_unsigned, narrow_range, kLegacy);
  const Variable v = against(x.as_float(), amax, kLegacy);
  Tensor y = legacy(v.tensor(), amax, format), mask;
  if (detail::needs_grad({v})) mask = detail::within_amax(v.tensor(), amax.tensor(), kLegacy);
  return detail::record_clipped(kLegacy, v, std::move(y), std::move(mask),
                                detail::TracedRange::integer(amax, format));
}

}  // namespace fq::pytorch_quantization
