#include "fakequant/core/cuda/permute.h"
#include "fakequant/core/cuda/strides.cuh"

namespace fq::cuda {
namespace {

template <class Word>
struct Gather {
  const Word* x;
  Word* y;
  Strides strides;
  FQ_HD void operator()(std::int64_t first, int count) const {
    Word v[group_size];
    load_strided(x, strides, 0, first, count, v);
    store_group(y + first, count, v);
  }
};

template <class Word>
void gather(const Tensor& x, const cpu::Walk& walk, Tensor& y) {
  for_groups(x.device(), x.numel(),
             Gather<Word>{static_cast<const Word*>(x.raw()), static_cast<Word*>(y.mutable_raw()),
                          Strides::of(walk)});
}

}  // namespace

void permute(const Tensor& x, const std::vector<int>& axes, Tensor& y) {
  if (y.numel() == 0) return;
  const auto walk = cpu::permute_walk(x, axes, y);
  switch (bit_width(x.dtype())) {
    case 8:
      return gather<std::uint8_t>(x, walk, y);
    case 16:
      return gather<std::uint16_t>(x, walk, y);
    case 32:
      return gather<std::uint32_t>(x, walk, y);
    default:
      return gather<std::uint64_t>(x, walk, y);
  }
}

}  // namespace fq::cuda
