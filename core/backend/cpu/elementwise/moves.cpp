#include <algorithm>
#include <cstddef>
#include <cstring>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/channels.h"
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
    // Elements that stay together are copied as one piece.
    if (step == 1) return static_cast<void>(std::copy_n(in, inner, out));
    for (std::int64_t i = 0; i < inner; ++i) out[i] = in[i * step];
  });
}

/// Gathers bits, byte by byte of y. Bits after the last element are 0.
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
      // `at` advances with the elements instead of a division per bit.
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

namespace {

/// Copies `count` bits between any bit positions: whole bytes of the target at once, the ends bit by bit.
void copy_bits(const std::byte* in, std::int64_t from, std::byte* out, std::int64_t to, std::int64_t count) {
  const auto one_by_one = [&](std::int64_t bits) {
    for (; bits > 0; --bits, ++from, ++to, --count) {
      const auto bit = in[from / 8] >> (from % 8) & std::byte{1};
      out[to / 8] = (out[to / 8] & ~(std::byte{1} << (to % 8))) | (bit << (to % 8));
    }
  };
  // First up to a byte of the target. Its other bits keep their values.
  one_by_one(std::min((8 - to % 8) % 8, count));
  for (const auto shift = static_cast<int>(from % 8); count >= 8; from += 8, to += 8, count -= 8) {
    // A byte of the target has bits of up to two bytes of the source.
    const auto low = in[from / 8] >> shift;
    out[to / 8] = shift == 0 ? low : low | in[from / 8 + 1] << (8 - shift);
  }
  one_by_one(count);
}

void copy(const detail::RunCopy& one) {
  const detail::StridedBits& c = one.bits;
  const auto* in = static_cast<const std::byte*>(one.in);
  auto* out = static_cast<std::byte*>(one.out);
  if (!c.whole_bytes()) {
    for (std::int64_t r = 0; r < c.runs; ++r)
      copy_bits(in, r * c.step_x + c.source, out, r * c.step_y + c.target, c.count);
    return;
  }
  detail::parallel_for(c.runs, c.runs * c.count > 8 << 18, [&](std::int64_t r) {
    std::memcpy(out + (r * c.step_y + c.target) / 8, in + (r * c.step_x + c.source) / 8,
                static_cast<std::size_t>(c.count / 8));
  });
}

}  // namespace

void copy_runs(std::span<const detail::RunCopy> copies, Device) {
  for (const auto& each : copies) copy(each);
}

}  // namespace fq::cpu
