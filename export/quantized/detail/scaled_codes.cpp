#include "fakequant/export/quantized/detail/scaled_codes.h"

#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/detail/check.h"

namespace fq::detail {

Tensor scaled_codes(const Tensor& codes, const Tensor& scale, const Granularity& by) {
  Tensor out = codes.clone();
  if (out.numel() == 0) return out;
  const BlockMap map = BlockMap::of(codes.shape(), by.block_shape(codes.shape()));
  FQ_CHECK(scale.numel() == map.blocks(), "import_quantized", "{} scales are for {} blocks of {}",
           scale.numel(), map.blocks(), to_string(codes.shape()));
  auto* values = out.mutable_data<float>();
  const auto* steps = scale.data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) values[i] *= steps[map.block_of(i)];
  return out;
}

}  // namespace fq::detail
