#include "fakequant/core/ops/detail/learned_range.h"

#include <cmath>
#include <vector>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/tape.h"

namespace fq::detail {
namespace {

/// Converts a tensor to the common layout. A per-tensor range works with any layout, others need row-major.
Tensor common_layout(const Tensor& t, bool per_tensor, Layout layout) {
  return t.to(per_tensor ? layout : Layout::row_major);
}

}  // namespace

Tensor amax_gradient(const RangedValues& x, const QuantizedTensor& codes, const Tensor& dy,
                     AmaxGradient gradient, double factor) {
  const Device device = codes.codes.device();
  Tensor out = Tensor::empty(codes.grid.amax.shape(), DType::f32, device);
  const bool lsq = gradient == AmaxGradient::lsq;
  const double bound = static_cast<double>(codes.grid.format.bound());
  const double count = static_cast<double>(codes.codes.numel()) / static_cast<double>(out.numel());
  // LSQ (Esser et al. 2020, section 2.2) scales the gradient of the step by 1 / sqrt(n * bound). The step is
  // amax / bound, which gives the other factor.
  const double divisor = lsq ? bound * std::sqrt(count * bound) : 1;
  const auto by = static_cast<float>(factor);
  run(device, &Kernels::amax_gradient, x, codes, dy, lsq, divisor, by, out);
  return out;
}

Variable attach_learned(const Variable& x, QuantizedTensor codes, const ops::LearnedRange& learned,
                        Attributes attributes) {
  FQ_CHECK(learned.amax.numel() == codes.grid.amax.numel(), "quantize",
           "the learned range of {} has {} elements, its grid {}", quantizer_label(codes.grid.name),
           learned.amax.numel(), codes.grid.amax.numel());
  const auto* sums = x.accumulator();
  // Sums cannot change. Floats may be written to before backward, so `Saved` checks their version.
  const RangedValues immutable = sums != nullptr ? RangedValues(*sums) : Tensor{};
  const Saved floats(sums != nullptr ? Tensor{} : x.tensor());
  const auto backward = [immutable, floats, codes, x_needs_grad = x.requires_grad(),
                         shape = learned.amax.shape(), gradient = learned.gradient,
                         factor = learned.factor](const Tensor& dy) {
    const bool per_tensor = codes.grid.granularity.is_per_tensor();
    const Layout layout = codes.layout();
    const QuantizedTensor same{common_layout(codes.codes, per_tensor, layout), codes.grid, {}};
    const Tensor& read = floats.get();
    const RangedValues values =
        read.defined() ? common_layout(read.to(DType::f32), per_tensor, layout) : immutable;
    const Tensor range = amax_gradient(values, same, common_layout(dy, per_tensor, layout), gradient, factor);
    return std::vector<Tensor>{x_needs_grad ? masked_gradient(dy, codes.mask) : Tensor{},
                               range.reshape(shape)};
  };
  Variable out = record("quantize", codes, {x, learned.amax}, backward, std::move(attributes));
  // The clip gradient reads dy only where a code is at an end of the range. The product that reads these
  // codes then computes only these rows of dX.
  const bool for_range_alone = !x.requires_grad() && learned.gradient == AmaxGradient::clip;
  if (for_range_alone && out.requires_grad())
    out.node()->gradient->reads = run(codes.codes.device(), &Kernels::rows_at_ends, codes);
  return out;
}

}  // namespace fq::detail
