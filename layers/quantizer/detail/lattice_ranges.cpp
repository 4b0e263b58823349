#include "fakequant/layers/quantizer/detail/lattice_ranges.h"

#include "fakequant/core/numerics/half.h"
#include "fakequant/layers/quantizer/detail/block_view.h"
#include "fakequant/layers/quantizer/detail/lattice.h"

namespace fq::detail {
namespace {

bool has_free_scales(const TensorQuantizer& q) {
  const QuantDescriptor& d = q.descriptor();
  return q.params().arithmetic == Arithmetic::deployed && !q.params().pow2 && d.format().is_integer() &&
         !d.block_sizes().empty() && !d.block_sizes().scale_bits && !d.scale_amax() &&
         !d.has_dynamic_blocks();
}

}  // namespace

Tensor ranges_with_lattices(const TensorQuantizer& quantizer, const Tensor& weight, const Tensor& amax) {
  if (!has_free_scales(quantizer)) return amax;
  const auto view = BlockView::of(quantizer.descriptor(), weight.shape());
  const Tensor x = view.apply(weight.to(Device::cpu()).to(DType::f32)).to(Layout::row_major);
  if (x.rank() != 2 || view.kept().values() != std::vector<int>{0} || x.dim(0) != amax.numel()) return amax;
  Tensor out = amax.to(Device::cpu()).to(DType::f32).clone();
  auto* ranges = out.mutable_data<float>();
  const bool bf16 = quantizer.params().engine_grid == EngineGrid::bf16_scales;
  const float bound = quantizer.descriptor().format().bound(),
              lower = quantizer.descriptor().format().lower();
  const auto length = static_cast<std::size_t>(x.dim(1));
#pragma omp parallel for schedule(static)
  for (std::int64_t b = 0; b < x.dim(0); ++b) {
    const std::span<const float> block(x.data<float>() + b * x.dim(1), length);
    const float own = lattice_step(block, lower, bound);
    const auto error = [&](float range) {
      const float step = range / bound;
      return multiples_error(block, bf16 ? static_cast<float>(bfloat16(step)) : step, lower, bound);
    };
    if (own > 0 && lattice_gain * error(own * bound) < error(ranges[b])) ranges[b] = own * bound;
  }
  return out.to(amax.dtype());
}

}  // namespace fq::detail
