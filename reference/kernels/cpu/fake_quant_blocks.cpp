#include <algorithm>
#include <array>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/last_axis_blocks.h"
#include "fakequant/reference/kernels/cpu/stretches.h"
#include "fakequant/reference/kernels/kernels.h"

namespace fq::cpu {
namespace {

constexpr std::int64_t kChunk = 4096;       // elements of a call
constexpr std::int64_t kFirstCache = 1024;  // elements that stay there for two passes, and the next with them

// Parameters of the blocks of a chunk, or of its elements where blocks are shorter than a vector.
struct ChunkColumns {
  // The shortest block has 8 elements; the rest is padding for vector reads.
  using Column = std::array<float, kFirstCache / 8 + 64>;
  Column amax, scale, unscale, bound;

  [[nodiscard]] Columns columns() const { return {scale.data(), scale.data(), unscale.data(), bound.data()}; }
};

// Repeats each number `block` times in place, from the back, so that no number is overwritten before it is
// read.
void spread(ChunkColumns& c, std::int64_t count, std::int64_t block) {
  for (auto* column : {&c.scale, &c.unscale})
    for (std::int64_t i = count * block; i-- > 0;)
      (*column)[static_cast<std::size_t>(i)] = (*column)[static_cast<std::size_t>(i / block)];
}

// Dynamic blocks: fill(columns, first, count) computes the scales of blocks from their largest |x|,
// run(stretch, columns) uses them. x is read twice while it is in the first-level cache. If blocks are
// shorter than a vector, each element gets its own parameter.
template <class Fill, class Run>
void dynamic(const Tensor& x, std::int64_t block, float bound, Tensor& y, Tensor* mask, Fill&& fill,
             Run&& run) {
  const bool narrow = block < vector_group();
  const std::int64_t length = narrow ? kFirstCache / 8 : kFirstCache;
  run_stretches(x, length, y, mask, [&](Stretch part, std::int64_t begin) {
    ChunkColumns c;
    const std::int64_t count = part.count / block;
    block_maxima(part.x, part.dtype, part.count, block, c.amax.data());
    fill(c, begin / block, count);
    c.bound.fill(bound);
    if (narrow) spread(c, count, block);
    part.shared = narrow ? 0 : block;
    part.ahead = byte_size(x.dtype(), length);
    run(part, c.columns());
  });
}

/// scale[i], unscale[i] = f(amax[i], i)
template <class F>
void fill_scales(ChunkColumns& c, std::int64_t count, F f) {
  const float* amax = c.amax.data();
  float* __restrict scale = c.scale.data(), * __restrict unscale = c.unscale.data();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto s = f(amax[i], i);
    scale[i] = s.scale;
    unscale[i] = s.unscale;
  }
}

void fill_scales(ChunkColumns& c, std::int64_t first, std::int64_t count, const detail::BlockScales& scales) {
  const detail::BlockScales own = scales;  // a copy that does not alias the output, so that loops vectorise
  if (own.rule == detail::BlockScales::Rule::power_of_two)
    return fill_scales(c, count, [own](float amax, std::int64_t) { return own.power_scale(amax); });
  fill_scales(c, count, [own, first](float amax, std::int64_t i) { return own(amax, first + i); });
}

// The divisor is 1 for a scale that is 0, infinite or NaN.
void divisors(const float* scale, std::int64_t count, float* divisor) {
  for (std::int64_t i = 0; i < count; ++i) divisor[i] = scalar::fp4_divisor(scale[i]);
}

// FP4 for blocks of whole vectors that divide a chunk.
void fp4_chunks(const Tensor& x, std::int64_t block, const float* scale, const float* bound, Tensor& y,
                Tensor* mask) {
  run_stretches(x, kChunk, y, mask, [=](Stretch part, std::int64_t begin) {
    std::array<float, kChunk / 8> divisor;
    const std::int64_t first = begin / block;
    divisors(scale + first, part.count / block, divisor.data());
    part.shared = block;
    fake_quant(part, Fp4Rows{{scale + first, divisor.data(), nullptr, bound + first}});
  });
}

}  // namespace

void fake_quant_blocks(const Tensor& x, std::int64_t block, const detail::ElementGrid& grid,
                       const detail::BlockScales& scales, float bound, Tensor& y, Tensor* mask) {
  dynamic(
      x, block, bound, y, mask,
      [&](ChunkColumns& c, std::int64_t first, std::int64_t count) { fill_scales(c, first, count, scales); },
      [&](const Stretch& stretch, const Columns& columns) {
        fake_quant(stretch, BlockRows{columns, grid});
      });
}

void fake_quant_nvfp4(const Tensor& x, float global, float bound, Tensor& y, Tensor* mask) {
  dynamic(
      x, 16, bound, y, mask,
      [global](ChunkColumns& c, std::int64_t, std::int64_t count) {
        nvfp4_scales(c.amax.data(), count, global, c.scale.data());
      },
      [](const Stretch& stretch, const Columns& columns) { fake_quant(stretch, Fp4Rows{columns}); });
}

void fake_quant_fp4(const Tensor& x, const Tensor& scales, const Tensor& bounds, Tensor& y, Tensor* mask) {
  // One or no block must not divide by 0.
  const std::int64_t blocks = scales.numel(), block = x.numel() / std::max<std::int64_t>(blocks, 1);
  if (blocks > 1 && block > 0 && block % vector_group() == 0 && kChunk % block == 0)
    return fp4_chunks(x, block, scales.data<float>(), bounds.data<float>(), y, mask);
  RangeTable table(3, blocks);
  const float* scale = table.filled(0, scales);
  const Columns columns{scale, table.column(1), nullptr, table.filled(2, bounds)};
  divisors(scale, padded(blocks), table.column(1));
  const auto run = [](const Stretch& stretch, const Columns& at) { fake_quant(stretch, Fp4Rows{at}); };
  if (blocks == 1) return run_stretches(x, columns, y, mask, run);
  // Any other block length: x as rows [blocks, block] with one parameter per row.
  const Shape grid{blocks, block};
  Tensor rows = y.reshape(grid), bits = mask == nullptr ? Tensor() : mask->reshape(grid);
  run_stretches(x.reshape(grid), {blocks, 1}, columns, rows, mask == nullptr ? nullptr : &bits, run);
}

// Plain loops for short last blocks and E3M0, which the vector kernels do not have.
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
