#include "fakequant/calib/detail/ranges.h"

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq::detail {

Tensor amax(const Tensor& x, const Axes& kept, std::string_view function) {
  return run(x.device(), &Kernels::amax, x, kept, function);
}

Tensor block_amax(const Tensor& x, const Granularity& by) {
  const Shape shape = by.scale_shape(x.shape());
  Tensor out = Tensor::empty(shape, DType::f32, x.device(), x.layout());
  run(x.device(), &Kernels::block_amax, x, by, out);
  return out;
}

void check_finite(const Tensor& amax, std::string_view function, const std::string& quantizer) {
  const auto text = [&](bool nan) {
    return fmt::format("{}, at {}", not_finite_text(nan, function), quantizer_label(quantizer));
  };
  run(amax.device(), &Kernels::check_finite, amax, text(true), text(false));
}

Tensor used_ranges(const Tensor& amax, float least, float factor) {
  Tensor out = Tensor::empty(amax.shape(), DType::f32, amax.device(), amax.layout());
  run(amax.device(), &Kernels::use_ranges, amax, least, factor, out);
  return out;
}

void move_ranges(Tensor& amax, const Tensor& batch, float momentum) {
  run(amax.device(), &Kernels::move_ranges, amax, batch, momentum);
}

void grow_ranges(Tensor& amax, const Tensor& batch, const Tensor& growing) {
  run(amax.device(), &Kernels::grow_ranges, amax, batch, growing);
}

ValueRange range(const Tensor& x) { return run(x.device(), &Kernels::range, x); }

void count(const Tensor& x, const BinRule& rule, std::span<std::int64_t> counts) {
  run(x.device(), &Kernels::count, x, rule, counts);
}

}  // namespace fq::detail
