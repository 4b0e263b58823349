#include <algorithm>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/detail/convert.h"

namespace fq::cpu {

void keep_mask(const detail::DropoutBlocks& blocks, Tensor& mask) {
  auto* keep = mask.mutable_data<std::uint8_t>();
  const std::int64_t count = mask.numel();
#pragma omp parallel for schedule(static) if (count > 16384)
  for (std::int64_t block = 0; block < (count + 3) / 4; ++block) {
    std::uint8_t four[4];
    blocks.keep(block, four);
    std::copy_n(four, std::min<std::int64_t>(count - 4 * block, 4), keep + 4 * block);
  }
}

void keep(const Tensor& x, const Tensor& mask, double scale, Tensor& y) {
  const auto* keep = mask.data<std::uint8_t>(mask.layout());
  detail::visit_float(x.dtype(), "dropout", [&]<class T>(T) {
    const T* in = x.data<T>(x.layout());
    T* out = y.mutable_data<T>(y.layout());
    const detail::Kept<T> kept{static_cast<T>(scale)};
#pragma omp parallel for simd schedule(static) if (x.numel() > parallel_elements)
    for (std::int64_t i = 0; i < x.numel(); ++i) out[i] = kept(in[i], keep[i]);
  });
}

}  // namespace fq::cpu
