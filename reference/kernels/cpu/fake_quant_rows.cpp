#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/last_axis_blocks.h"
#include "fakequant/reference/kernels/kernels.h"

namespace fq::cpu {

void fake_quant_rows(const Tensor& x, std::int64_t block, const detail::ElementGrid& grid, bool half_away,
                     const detail::BlockScales& scales, Tensor& y) {
  detail::map_last_axis_blocks(x, block, y, [&](const float* in, float* out, auto count, auto j) {
    const auto s = scales(detail::largest_number(in, count), j);
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = half_away ? detail::e3m0_fake_quant(in[i], s)
                         : scalar::block_fake_quant(in[i], s.scale, s.unscale, grid.max, grid.min_normal,
                                                    grid.step, grid.nan);
  });
}

void fake_quant_nvfp4_rows(const Tensor& x, float global, Tensor& y) {
  detail::map_last_axis_blocks(x, 16, y, [global](const float* in, float* out, auto count, auto) {
    const float scale = scalar::nvfp4_scale(detail::largest_number(in, count), global);
    for (std::int64_t i = 0; i < count; ++i) out[i] = scalar::fp4_fake_quant(in[i], scale);
  });
}

}  // namespace fq::cpu
