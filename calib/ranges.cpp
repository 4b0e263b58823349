#include "fakequant/calib/ranges.h"

#include <cmath>

#include "fakequant/calib/cpu/count.h"
#include "fakequant/calib/cuda/count.h"
#include "fakequant/calib/cuda/range_updates.h"
#include "fakequant/calib/cuda/ranges.h"
#include "fakequant/calib/range_formulas.h"
#include "fakequant/core/check.h"

namespace fq::detail {

Tensor amax(const Tensor& x, const Axes& kept, std::string_view function) {
  return (x.device().is_cuda() ? cuda::amax : cpu::amax)(x, kept, function);
}

void check_finite(const Tensor& amax, std::string_view function, const std::string& quantizer) {
  const auto text = [&](bool nan) {
    return fmt::format("{}, at '{}'", cpu::not_finite_text(nan, function), quantizer);
  };
  if (amax.device().is_cuda()) return cuda::check_finite(amax, text(true), text(false));
  const auto* v = amax.data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i)
    if (!std::isfinite(v[i])) throw NumericError(text(std::isnan(v[i])));
}

Tensor used_ranges(const Tensor& amax, float least, float factor) {
  Tensor out = Tensor::empty(amax.shape(), DType::f32, amax.device());
  if (amax.device().is_cuda()) cuda::use_ranges(amax, least, factor, out);
  if (!amax.device().is_cpu()) return out;
  auto* values = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) values[i] = used_range(amax.data<float>()[i], least, factor);
  return out;
}

void move_ranges(Tensor& amax, const Tensor& batch, float momentum) {
  if (amax.device().is_cuda()) return cuda::move_ranges(amax, batch, momentum);
  auto* values = amax.mutable_data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i)
    values[i] = moved_range(values[i], batch.data<float>()[i], momentum);
}

cpu::Range range(const Tensor& x) { return (x.device().is_cuda() ? cuda::range : cpu::range)(x); }

void count(const Tensor& x, const cpu::BinRule& rule, std::span<std::int64_t> counts) {
  if (x.device().is_cuda()) return cuda::count(x, rule, counts);
  cpu::count({x.data<float>(x.layout()), static_cast<std::size_t>(x.numel())}, rule, counts);
}

}  // namespace fq::detail
