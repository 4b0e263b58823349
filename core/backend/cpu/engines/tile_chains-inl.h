// Chains of blocks for 16 rows and 16 outputs, with AMX tiles. Include in a source that uses
// foreach_target.h, after chain_sums-inl.h and tiles-inl.h; not a public header. Included once for each
// target, hence no pragma once.

#if defined(FQ_TILE_CHAINS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FQ_TILE_CHAINS_INL_H
#undef FQ_TILE_CHAINS_INL_H
#else
#define FQ_TILE_CHAINS_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <utility>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL
constexpr std::int64_t kTileColumns = 32;

/// Returns the tile shapes: two tiles of sums, one of x, one of w.
inline TileShapes chain_shapes() { return {.row_bytes = {64, 64, 32, 64}, .rows = {16, 16, 16, 8}}; }

/// Computes sums [16, 16] of `columns` codes of the rows of x, `pitch` apart, i8 or u8, in one of two tiles.
/// w has the layout of BlockChains.
template <bool with_sign, int tile>
HWY_INLINE void tile_sums(const std::int8_t* x, std::int64_t pitch, const std::int8_t* w,
                          std::int64_t columns) {
  constexpr std::int64_t row = 64;
  clear_tile<tile>();
  for (std::int64_t k = 0; k < columns; k += kTileColumns, x += kTileColumns, w += kTileColumns * kTile) {
    load_tile<2>(x, pitch);
    load_tile<3>(w, row);
    if constexpr (with_sign)
      __asm__ volatile("tdpbssd %%tmm3, %%tmm2, %%tmm%c0" : : "i"(tile));
    else
      __asm__ volatile("tdpbusd %%tmm3, %%tmm2, %%tmm%c0" : : "i"(tile));
  }
}
/// Computes the chains of a strip. The sums of two blocks are in tiles, or being stored, while the sums of
/// earlier blocks are added to the chains.
template <bool with_sign, int... rows>
class TileChains {
 public:
  TileChains(const cpu::BlockChains& a, std::int64_t row, std::int64_t n)
      : a_(a),
        row_(row),
        blocks_(a.columns / a.block),
        x_((with_sign ? a.codes : reinterpret_cast<const std::int8_t*>(a.x)) + row * a.columns),
        w_(a.w + n * a.columns),
        w_scale_(a.w_scale + n * blocks_),
        n_(n) {}

  HWY_INLINE void run() {
    FloatVector chains[kTile] = {begun_chain(a_, row_ + rows, n_)...};
    make<0>(0);
    make<1>(1);
    keep<0>(0);
    for (std::int64_t b = 0; b < blocks_; b += 2) {
      make<0>(b + 2);
      keep<1>(b + 1);
      add(b, chains);
      make<1>(b + 3);
      keep<0>(b + 2);
      add(b + 1, chains);
    }
    (store_chain(a_, row_ + rows, n_, chains[rows]), ...);
  }

 private:
  template <int tile>
  HWY_INLINE void make(std::int64_t b) const {
    if (b < blocks_)
      tile_sums<with_sign, tile>(x_ + b * a_.block, a_.columns, w_ + b * a_.block * kTile, a_.block);
  }
  template <int tile>
  HWY_INLINE void keep(std::int64_t b) {
    constexpr std::int64_t row = 64;
    if (b < blocks_) store_tile<tile>(sums_[b % 4], row);
  }
  HWY_INLINE void add(std::int64_t b, FloatVector* chains) const {
    if (b >= blocks_) return;
    const std::int32_t* sums = sums_[b % 4];
    const float *w_scale = w_scale_ + b * kTile, *x_scale = a_.x_scale;
    ((chains[rows] = next(
          chains[rows], hn::Load(SumTag(), sums + rows * kTile),
          hn::Set(FloatTag(), x_scale != nullptr ? x_scale[(row_ + rows) * blocks_ + b] : 1.0f), w_scale)),
     ...);
  }

  const cpu::BlockChains& a_;
  std::int64_t row_, blocks_;
  const std::int8_t *x_, *w_;
  const float* w_scale_;
  std::int64_t n_;
  HWY_ALIGN std::int32_t sums_[4][kTile * kTile];
};
template <bool with_sign, int... rows>
HWY_INLINE void tile_chains(const cpu::BlockChains& a, std::int64_t row, std::int64_t n,
                            std::integer_sequence<int, rows...>) {
  TileChains<with_sign, rows...>(a, row, n).run();
}

/// Computes two vertical tiles per strip, which is read once for both. Returns the first row that is not
/// processed.
HWY_INLINE std::int64_t chain_tiles(const cpu::BlockChains& a, std::int64_t begin, std::int64_t end,
                                    std::int64_t n, std::int64_t last) {
  using Rows = std::make_integer_sequence<int, kTile>;
  end = std::min(end, a.tiled_rows);
  if (begin >= end) return begin;
  const Tiles tiles(chain_shapes());
  for (std::int64_t row = begin; row < end; row += 2 * kTile)
    for (std::int64_t at = n; at < last; at += kTile)
      for (std::int64_t r = row; r < std::min(end, row + 2 * kTile); r += kTile)
        a.codes != nullptr ? tile_chains<true>(a, r, at, Rows()) : tile_chains<false>(a, r, at, Rows());
  return end;
}
std::int64_t RowsOfTiles() { return kTile; }
#else
HWY_INLINE std::int64_t chain_tiles(const cpu::BlockChains&, std::int64_t begin, std::int64_t, std::int64_t,
                                    std::int64_t) {
  return begin;
}
std::int64_t RowsOfTiles() { return 0; }
#endif

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
