#include "fakequant/calib/detail/ranges.h"

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/backend/range_kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq::detail {

Tensor amax(const Tensor& x, const Axes& kept, std::string_view function) {
  return run(x.device(), &RangeKernels::amax, x, kept, function);
}

Tensor block_amax(const Tensor& x, const Granularity& by) {
  const Shape shape = by.scale_shape(x.shape());
  Tensor out = Tensor::empty(shape, DType::f32, x.device(), x.layout());
  run(x.device(), &RangeKernels::block_amax, x, by, out);
  return out;
}

void check_finite(const Tensor& amax, std::string_view function, const std::string& quantizer) {
  const auto text = [&](bool nan) {
    return fmt::format("{}, at {}", cpu::not_finite_text(nan, function), quantizer_label(quantizer));
  };
  run(amax.device(), &RangeKernels::check_finite, amax, text(true), text(false));
}

Tensor used_ranges(const Tensor& amax, float least, float factor) {
  Tensor out = Tensor::empty(amax.shape(), DType::f32, amax.device(), amax.layout());
  run(amax.device(), &RangeKernels::use_ranges, amax, least, factor, out);
  return out;
}

void move_ranges(Tensor& amax, const Tensor& batch, float momentum) {
  run(amax.device(), &RangeKernels::move_ranges, amax, batch, momentum);
}

void grow_ranges(Tensor& amax, const Tensor& batch, const Tensor& growing) {
  run(amax.device(), &RangeKernels::grow_ranges, amax, batch, growing);
}

cpu::Range range(const Tensor& x) { return run(x.device(), &RangeKernels::range, x); }

void count(const Tensor& x, const cpu::BinRule& rule, std::span<std::int64_t> counts) {
  run(x.device(), &RangeKernels::count, x, rule, counts);
}

}  // namespace fq::detail
