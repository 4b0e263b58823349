#include "fakequant/core/backend/cpu/ranges/range_updates.h"

#include <bit>
#include <cmath>

#include "fakequant/core/backend/cpu/ranges/range_kernels.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/range_formulas.h"

namespace fq::cpu {

void check_finite(const Tensor& amax, const std::string& nan, const std::string& infinity) {
  const auto* v = amax.data<float>(amax.layout());
  if (amax.numel() > 0 && std::isfinite(std::bit_cast<float>(extremes(v, amax.numel()).magnitude))) return;
  for (std::int64_t i = 0; i < amax.numel(); ++i)
    if (!std::isfinite(v[i])) throw NumericError(std::isnan(v[i]) ? nan : infinity);
}

void use_ranges(const Tensor& amax, float least, float factor, Tensor& out) {
  const auto* from = amax.data<float>(amax.layout());
  auto* to = out.mutable_data<float>(out.layout());
  for (std::int64_t i = 0; i < out.numel(); ++i) to[i] = detail::used_range(from[i], least, factor);
}

void move_ranges(Tensor& amax, const Tensor& batch, float momentum) {
  const auto* from = batch.data<float>();
  auto* to = amax.mutable_data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i) to[i] = detail::moved_range(to[i], from[i], momentum);
}

void grow_ranges(Tensor& amax, const Tensor& batch, const Tensor& growing) {
  const auto* from = batch.data<float>();
  auto* to = amax.mutable_data<float>();
  const auto* grows = growing.data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i)
    if (grows[i] != 0) to[i] = detail::grown_range(to[i], from[i]);
}

}  // namespace fq::cpu
