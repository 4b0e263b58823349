#include <cmath>
#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/detail/block_ranges.h"
#include "fakequant/reference/detail/rounding.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/detail/torchao_grid.h"
#include "fakequant/reference/torchao.h"

namespace fq::torchao {
namespace {

using detail::Ranges;
using detail::rounded;
using detail::Step;

// Scale and zero point of each block as f32, before the cast to their stored types.
struct Numbers {
  std::vector<float> scale, zero_point;
};

// torch.finfo(dtype).tiny, torchao's default of eps. bf16 has the exponents of f32.
double smallest_normal(DType dtype) { return dtype == DType::f16 ? 0x1p-14 : 0x1p-126; }

// A value as an x86 cast converts it: truncated and wrapped. NaN and infinity become the lowest 32- or 64-bit
// integer, which has 0 in its low bytes.
template <class T>
T as_integer(float value) {
  if (std::isfinite(value)) return static_cast<T>(static_cast<std::int64_t>(value));
  return sizeof(T) < 4 ? T{0} : std::numeric_limits<T>::min();
}

// Returns `values` in a tensor of that type. Integer types get as_integer.
Tensor as_type(const std::vector<float>& values, const Shape& shape, DType dtype) {
  Tensor out = Tensor::empty(shape, dtype);
  detail::visit_dtype(dtype, "choose_qparams", [&]<class T>(T) {
    auto* to = out.mutable_data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_integral_v<T>)
        to[i] = as_integer<T>(values[i]);
      else
        to[i] = static_cast<T>(values[i]);
    }
  });
  return out;
}

// Computes scale and zero point of each range by f(lower, upper, eps, codes, near), in operations rounded to
// T, the type of x. `near` has the bounds of the codes and the zero point of symmetric ranges rounded to T.
template <class F>
QParams choose(const Ranges& ranges, const Shape& shape, DType dtype, DType zero_point_dtype,
               IntegerType target, const QParamsOptions& options, const char* function, F f) {
  check_float(dtype, "input", function);
  const Codes codes = Codes::of(target, options.range, function);
  Numbers n;
  detail::visit_rounding(dtype, [&]<class T>(T) {
    using V = Step<T>;
    const V eps{rounded<T>(static_cast<float>(options.eps.value_or(smallest_normal(dtype))))};
    const Codes near{rounded<T>(codes.lower), rounded<T>(codes.upper), rounded<T>(std::trunc(codes.middle))};
    for (std::size_t i = 0; i < ranges.lower.size(); ++i) {
      const auto [scale, zero] = f(V{ranges.lower[i]}, V{ranges.upper[i]}, eps, codes, near);
      n.scale.push_back(static_cast<float>(scale));
      n.zero_point.push_back(static_cast<float>(zero));
    }
  });
  return {as_type(n.scale, shape, options.scale_dtype.value_or(dtype)),
          as_type(n.zero_point, shape, options.zero_point_dtype.value_or(zero_point_dtype))};
}

// Returns the symmetric scale of the mirrored range -hi .. -lo. If both sides are equal, -lo is used: a block
// of zeros has scale -0, as in torchao.
template <class V>
V mirrored_scale(V lower, V upper, V half_steps) {
  using scalar::mul_;
  const V minus{-1.0f};
  return scalar::symmetric_scale(mul_(upper, minus), mul_(lower, minus), half_steps);
}

// Returns scale and zero point of a range that includes 0, by `mapping`.
template <class V>
std::pair<V, V> preserving(MappingType mapping, V lower, V upper, V eps, const Codes& codes,
                           const Codes& near) {
  using scalar::clamp_min;
  const V steps{codes.upper - codes.lower};
  switch (mapping) {
    case MappingType::symmetric:
      return {clamp_min(mirrored_scale(lower, upper, V{(codes.upper - codes.lower) / 2}), eps),
              V{near.middle}};
    case MappingType::symmetric_no_clipping_err:
      return {clamp_min(scalar::no_clipping_scale(lower, upper, V{codes.lower}, V{codes.upper}), eps),
              V{near.middle}};
    default:
      break;
  }
  // The zero point comes from the scale in T, before its cast to scale_dtype.
  const V scale = clamp_min(scalar::asymmetric_scale(lower, upper, steps), eps);
  return {scale, scalar::asymmetric_zero_point(lower, scale, V{near.lower}, V{near.upper})};
}

// Widens each range to include 0, so that zero has an exact code (preserve_zero=True in torchao).
QParams choose_preserving(const Ranges& ranges, const Shape& shape, DType dtype, MappingType mapping,
                          IntegerType target, const QParamsOptions& options, const char* function) {
  return choose(ranges, shape, dtype, DType::i32, target, options, function,
                [mapping]<class V>(V lower, V upper, V eps, const Codes& codes, const Codes& near) {
                  const V zero{0.0f};
                  return preserving(mapping, scalar::clamp_max(lower, zero), scalar::clamp_min(upper, zero),
                                    eps, codes, near);
                });
}

void check_asymmetric(MappingType mapping, const char* function) {
  FQ_CHECK(mapping == MappingType::asymmetric, function, "the mapping is symmetric: use asymmetric");
}

/// On `meta`, results without values.
QParams unknown(const Shape& shape, DType dtype, DType zero_point_dtype, const QParamsOptions& options) {
  return {Tensor::empty(shape, options.scale_dtype.value_or(dtype), Device::meta()),
          Tensor::empty(shape, options.zero_point_dtype.value_or(zero_point_dtype), Device::meta())};
}

}  // namespace

QParams choose_qparams_affine(const Tensor& x, MappingType mapping_type, const Shape& block_size,
                              IntegerType target_dtype, const QParamsOptions& options) {
  if (detail::needs_host(x))
    return detail::on_host(choose_qparams_affine, x, mapping_type, block_size, target_dtype, options);
  constexpr const char* where = "choose_qparams_affine";
  const Reduction r = reduction(x.shape(), block_size, where);
  if (options.keepdim) check_kept(r, where);
  const Shape& shape = options.keepdim ? r.kept : r.result;
  if (x.device().is_meta()) return unknown(shape, x.dtype(), DType::i32, options);
  return choose_preserving(detail::block_ranges(x, r.block, where), shape, x.dtype(), mapping_type,
                           target_dtype, options, where);
}

QParams choose_qparams_affine_with_min_max(const Tensor& min_val, const Tensor& max_val,
                                           MappingType mapping_type, IntegerType target_dtype,
                                           const QParamsOptions& options) {
  if (detail::needs_host(min_val))
    return detail::on_host(choose_qparams_affine_with_min_max, min_val, max_val, mapping_type, target_dtype,
                           options);
  constexpr const char* where = "choose_qparams_affine_with_min_max";
  FQ_CHECK(min_val.shape() == max_val.shape() && min_val.dtype() == max_val.dtype(), where,
           "min_val is {} and max_val {}: use the same shape and dtype", min_val.describe(),
           max_val.describe());
  // f32 represents f16 and bf16 exactly. `choose` rounds its operations to the type of min_val.
  const auto values = [](const Tensor& t) { return t.to(DType::f32).to_vector<float>(); };
  return choose_preserving({values(min_val), values(max_val)}, min_val.shape(), min_val.dtype(), mapping_type,
                           target_dtype, options, where);
}

QParams choose_qparams_affine_tinygemm(const Tensor& x, MappingType mapping_type, const Shape& block_size,
                                       IntegerType target_dtype, const QParamsOptions& options) {
  if (detail::needs_host(x))
    return detail::on_host(choose_qparams_affine_tinygemm, x, mapping_type, block_size, target_dtype,
                           options);
  constexpr const char* where = "choose_qparams_affine_tinygemm";
  check_asymmetric(mapping_type, where);
  const Reduction r = reduction(x.shape(), block_size, where);
  if (x.device().is_meta()) return unknown(r.result, x.dtype(), x.dtype(), options);
  return choose(detail::block_ranges(x, r.block, where), r.result, x.dtype(), x.dtype(), target_dtype,
                options, where, []<class V>(V lower, V upper, V eps, const Codes& codes, const Codes&) {
                  const V steps{codes.upper - codes.lower};
                  const V scale = scalar::clamp_min(scalar::asymmetric_scale(lower, upper, steps), eps);
                  // tinygemm's zero point is a value, not a code: the number that the middle code represents.
                  return std::pair(scale, scalar::floating_value(V{codes.middle}, scale, lower));
                });
}

QParams choose_qparams_affine_dont_preserve_zero(const Tensor& x, MappingType mapping_type,
                                                 const Shape& block_size, IntegerType target_dtype,
                                                 const QParamsOptions& options) {
  if (detail::needs_host(x))
    return detail::on_host(choose_qparams_affine_dont_preserve_zero, x, mapping_type, block_size,
                           target_dtype, options);
  constexpr const char* where = "choose_qparams_affine_dont_preserve_zero";
  check_asymmetric(mapping_type, where);
  const Reduction r = reduction(x.shape(), block_size, where);
  if (x.device().is_meta()) return unknown(r.result, x.dtype(), DType::i32, options);
  return choose(detail::block_ranges(x, r.block, where), r.result, x.dtype(), DType::i32, target_dtype,
                options, where, []<class V>(V lower, V upper, V eps, const Codes& codes, const Codes& near) {
                  return preserving(MappingType::asymmetric, lower, upper, eps, codes, near);
                });
}

}  // namespace fq::torchao
