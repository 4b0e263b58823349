#include "fakequant/core/backend/cuda/elementwise/permute.h"
#include "fakequant/core/backend/cuda/elementwise/transpose.h"
#include "fakequant/core/backend/cuda/loops/bits.cuh"
#include "fakequant/core/backend/cuda/loops/strides.cuh"

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

/// The bits of a mask, byte by byte of y.
struct GatherBits {
  const std::uint8_t* x;
  std::uint8_t* y;
  Strides strides;
  FQ_HD void operator()(std::int64_t first, int count) const {
    unsigned bits = 0;
    for (int j = 0; j < count; ++j) bits |= (get_bit(x, strides.offset(0, first + j)) ? 1u : 0u) << j;
    y[first / 8] = static_cast<std::uint8_t>(bits);
  }
};

void gather_bits(const Tensor& x, const cpu::Walk& walk, Tensor& y) {
  for_groups(x.device(), x.numel(),
             GatherBits{static_cast<const std::uint8_t*>(x.raw()),
                        static_cast<std::uint8_t*>(y.mutable_raw()), Strides::of(walk)});
}

/// Matrices that are turned over, one behind the other: both of their axes lie together.
bool try_transpose(const Tensor& x, const cpu::Walk& walk, Tensor& y) {
  const auto& sizes = walk.sizes();
  const auto& steps = walk.strides(0);
  if (sizes.size() < 2 || sizes.size() > 3) return false;
  const std::size_t last = sizes.size() - 1;
  const std::int64_t columns = sizes[last - 1], rows = sizes[last];
  if (steps[last - 1] != 1 || steps[last] != columns || (last == 2 && steps[0] != rows * columns))
    return false;
  transpose(x.raw(), y.mutable_raw(), bit_width(x.dtype()), last == 2 ? sizes[0] : 1, rows, columns,
            x.device());
  return true;
}

}  // namespace

void permute(const Tensor& x, const std::vector<int>& axes, Tensor& y) {
  if (y.numel() == 0) return;
  const auto walk = cpu::permute_walk(cpu::placed(x), axes, y.shape());
  if (bit_width(x.dtype()) == 1) return gather_bits(x, walk, y);
  if (try_transpose(x, walk, y)) return;
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
