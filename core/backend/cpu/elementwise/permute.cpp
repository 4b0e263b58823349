#include <algorithm>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/parallel_for.h"
#include "fakequant/core/blocks/detail/walk.h"

namespace fq::cpu {
namespace {

template <class Word>
void gather(const void* from, const Walk& walk, std::int64_t count, void* to) {
  const auto* x = static_cast<const Word*>(from);
  auto* y = static_cast<Word*>(to);
  const std::int64_t inner = walk.inner(), step = walk.step(0);
  detail::parallel_for(walk.rows(), count > parallel_elements, [&](std::int64_t row) {
    const Word* in = x + walk.offset(0, row);
    Word* out = y + row * inner;
    if (step == 1) return static_cast<void>(std::copy_n(in, inner, out));
    for (std::int64_t i = 0; i < inner; ++i) out[i] = in[i * step];
  });
}

/// Byte by byte of y; the bits after the last element are 0.
void gather_bits(const void* from, const Walk& walk, std::int64_t count, void* to) {
  const auto* x = static_cast<const std::uint8_t*>(from);
  auto* y = static_cast<std::uint8_t*>(to);
  const std::int64_t inner = walk.inner(), step = walk.step(0);
#pragma omp parallel for schedule(static) if (count > parallel_elements)
  for (std::int64_t byte = 0; byte < (count + 7) / 8; ++byte) {
    const std::int64_t first = 8 * byte, end = std::min(first + 8, count);
    std::int64_t row = first / inner, column = first % inner, at = walk.offset(0, row) + column * step;
    unsigned bits = 0;
    for (std::int64_t i = first; i < end; ++i, ++column, at += step) {
      if (column == inner) {
        column = 0;
        at = walk.offset(0, ++row);
      }
      bits |= (x[at / 8] >> (at % 8) & 1U) << (i - first);
    }
    y[byte] = static_cast<std::uint8_t>(bits);
  }
}

}  // namespace

void permute(const Tensor& x, const std::vector<int>& axes, Tensor& y) {
  if (y.numel() == 0) return;
  const auto walk = permute_walk(placed(x), axes, y.shape());
  void* out = y.mutable_raw();
  switch (bit_width(x.dtype())) {
    case 1:
      return gather_bits(x.raw(), walk, y.numel(), out);
    case 8:
      return gather<std::uint8_t>(x.raw(), walk, y.numel(), out);
    case 16:
      return gather<std::uint16_t>(x.raw(), walk, y.numel(), out);
    case 32:
      return gather<std::uint32_t>(x.raw(), walk, y.numel(), out);
    default:
      return gather<std::uint64_t>(x.raw(), walk, y.numel(), out);
  }
}

}  // namespace fq::cpu
