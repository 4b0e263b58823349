#include "fakequant/core/ops/learned_range.h"

#include <cmath>
#include <vector>

#include "fakequant/core/check.h"
#include "fakequant/core/cpu/grid.h"
#include "fakequant/core/cuda/range_gradients.h"
#include "fakequant/core/reference/blocks.h"
#include "fakequant/core/tape.h"

namespace fq::detail {
namespace {

using cpu::GridRow;

template <class Share>
std::vector<double> sums(const Tensor& x, const QuantizedTensor& codes, const Tensor& dy, Share share) {
  const auto rows = cpu::grid_rows(codes.spec);
  const Tensor values = code_values(codes);
  const float *v = x.data<float>(x.layout()), *q = values.data<float>(x.layout()),
              *g = dy.data<float>(x.layout());
  std::vector<double> out(rows.size());
  const Shape block = codes.spec.granularity.block_shape(x.shape());
  for_block_runs(x.shape(), block,
                 [&](std::int64_t begin, std::int64_t end, std::int64_t j, std::int64_t step) {
                   for (std::int64_t i = begin; i < end; ++i, j += step)
                     out[static_cast<std::size_t>(j)] +=
                         static_cast<double>(g[i]) *
                         static_cast<double>(share(v[i], q[i], rows[static_cast<std::size_t>(j)]));
                 });
  return out;
}

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
  if (x.device().is_cuda()) cuda::amax_gradient(x, codes, dy, lsq, divisor, by, out);
  if (!x.device().is_cpu()) return out;
  const auto total =
      lsq ? sums(x, codes, dy, lsq_share)
          : sums(x, codes, dy, [](float v, float, const GridRow& row) { return clip_share(v, row); });
  auto* values = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    values[i] = static_cast<float>(total[static_cast<std::size_t>(i)] / divisor) * by;
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
