#include "fakequant/core/ops/detail/learned_range.h"

#include <cmath>
#include <vector>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/tape.h"

namespace fq::detail {
namespace {

/// The values that were quantized, in the layout of the codes. Sums are converted again, floats were kept.
Tensor values_of(const Variable& x, const Saved& kept) {
  return x.accumulator() != nullptr ? to_float(*x.accumulator()) : kept.get().to(DType::f32);
}

/// One layout for all three; per tensor any will do.
Tensor in_layout(const Tensor& t, bool per_tensor, Layout layout) {
  return t.to(per_tensor ? layout : Layout::row_major);
}

}  // namespace

Tensor amax_gradient(const Tensor& x, const QuantizedTensor& codes, const Tensor& dy, AmaxGradient gradient,
                     double factor) {
  Tensor out = Tensor::empty(codes.spec.amax.shape(), DType::f32, x.device());
  const bool lsq = gradient == AmaxGradient::lsq;
  const double bound = static_cast<double>(codes.spec.format.bound());
  const double count = static_cast<double>(x.numel()) / static_cast<double>(out.numel());
  const double divisor = lsq ? bound * std::sqrt(count * bound) : 1;
  const auto by = static_cast<float>(factor);
  run(x.device(), &Kernels::amax_gradient, x, codes, dy, lsq, divisor, by, out);
  return out;
}

Variable attach_learned(const Variable& x, QuantizedTensor codes, const ops::LearnedRange& learned,
                        Attributes attributes) {
  FQ_CHECK(learned.amax.numel() == codes.spec.amax.numel(), "quantize",
           "the learned range of '{}' has {} elements, its grid {}", codes.spec.name, learned.amax.numel(),
           codes.spec.amax.numel());
  const Saved kept(x.accumulator() != nullptr ? Tensor{} : x.tensor());
  const auto backward = [x, kept, codes, learned](const Tensor& dy) {
    const bool per_tensor = codes.spec.granularity.is_per_tensor();
    const Layout layout = codes.layout();
    QuantizedTensor same{in_layout(codes.codes, per_tensor, layout), codes.spec, {}};
    const Tensor values = in_layout(values_of(x, kept), per_tensor, layout);
    const Tensor range =
        amax_gradient(values, same, in_layout(dy, per_tensor, layout), learned.gradient, learned.factor);
    return std::vector<Tensor>{x.requires_grad() ? apply_mask(dy, codes.mask) : Tensor{},
                               range.reshape(learned.amax.shape())};
  };
  return record("quantize", codes, {x, learned.amax}, backward, std::move(attributes));
}

}  // namespace fq::detail
