#include "fakequant/calib/detail/ranges.h"

#include <cmath>

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
  // The texts are made before the check: a GPU reports the failure later, without this function on the stack.
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

Format search_format(const CalibratorOptions& o, std::string_view function) {
  if (o.num_bits.is_integer()) return IntFormat{o.num_bits.bits(), o.is_unsigned, o.narrow_range};
  FQ_CHECK(o.num_bits == NumBits(4, 3) || o.num_bits == NumBits(2, 1), function,
           "{}: use an integer format, (4, 3) or (2, 1)", to_string(o.num_bits));
  return FloatFormat{o.num_bits.exponent(), o.num_bits.mantissa()};
}

std::vector<float> linspace(float first, float last, int count) {
  // torch.linspace counts from both ends, with one rounding per value.
  const float step = (last - first) / static_cast<float>(count - 1);
  std::vector<float> out;
  for (int i = 0; i < count; ++i)
    out.push_back(i < count / 2 ? std::fma(step, static_cast<float>(i), first)
                                : std::fma(-step, static_cast<float>(count - 1 - i), last));
  return out;
}

}  // namespace fq::detail
