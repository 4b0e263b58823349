#include "fakequant/layers/quantizer/detail/block_ranges.h"

#include <fmt/format.h>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/text.h"

namespace fq::detail {

Tensor flat_ranges(const Tensor& amax) { return listed(amax.to(Device::cpu()).to(DType::f32).clone()); }

Tensor listed(const Tensor& amax) { return amax.numel() == 1 ? amax.reshape({}) : amax.reshape({-1}); }

Tensor ranges_of(const Tensor& x, const BlockView& view, const std::string& quantizer) {
  const Tensor out = amax(view.apply(x.to(DType::f32)), view.kept(), "quantizer");
  check_finite(out, "quantizer", quantizer);
  return listed(out);
}

Tensor ranges_of(const Tensor& x, const Granularity& granularity, const std::string& quantizer) {
  const Tensor out = block_amax(x.to(DType::f32), granularity);
  check_finite(out, "quantizer", quantizer);
  return granularity.single_axis(x.rank()) < 0 ? out : listed(out.to(Layout::row_major));
}

void rethrow_named(const NumericError& error, const std::string& quantizer) {
  throw NumericError(fmt::format("{}, at {}", error.what(), quantizer_label(quantizer)));
}

}  // namespace fq::detail
