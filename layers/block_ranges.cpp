#include "fakequant/layers/block_ranges.h"

#include <fmt/format.h>

#include "fakequant/calib/ranges.h"

namespace fq::detail {

Tensor flat_ranges(const Tensor& amax) {
  const Tensor values = amax.to(Device::cpu()).to(DType::f32).clone();
  return values.numel() == 1 ? values.reshape({}) : values.reshape({-1});
}

Tensor ranges_of(const Tensor& x, const BlockView& view, const std::string& quantizer) try {
  const Tensor out = amax(view.apply(x.to(DType::f32)), view.kept(), "quantizer").to(Device::cpu());
  cpu::check_finite(out, "quantizer");
  return flat_ranges(out);
} catch (const NumericError& error) {
  rethrow_named(error, quantizer);
}

void rethrow_named(const NumericError& error, const std::string& quantizer) {
  throw NumericError(fmt::format("{}, at '{}'", error.what(), quantizer));
}

}  // namespace fq::detail
