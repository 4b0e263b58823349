#include "fakequant/core/backend/cpu/engine/tile_kernels.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/engine/tile_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/tiles-inl.h"
//
#include "fakequant/core/backend/cpu/vector/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3
using cpu::kTileNumbers, cpu::kTileSide, cpu::TileLines, cpu::PackedProduct;
// A tile has 16 rows of 16 pairs. TDPBF16PS multiplies pairs of terms (k, k + 1): the left tile has one row
// per row of c, and the right tile one column per column of c, both with a pair in each 32-bit element.
using PairTag = hn::FixedTag<std::uint32_t, 16>;
using QuadTag = hn::FixedTag<std::uint32_t, 4>;
using HalfTag = hn::FixedTag<std::uint16_t, 16>;
using Pairs = hn::Vec<PairTag>;

/// Loads four rows that are 4 rows apart, with four pairs each.
HWY_INLINE Pairs quads(const std::uint16_t* from, std::int64_t pitch) {
  const auto quad = [&](std::int64_t row) {
    return hn::LoadU(QuadTag(), reinterpret_cast<const std::uint32_t*>(from + row * pitch));
  };
  const hn::Half<PairTag> half;
  return hn::Combine(PairTag(), hn::Combine(half, quad(12), quad(8)), hn::Combine(half, quad(4), quad(0)));
}

/// Transposes 16 rows of 16 pairs to [16 pairs, 16].
HWY_INLINE void transpose_pairs(const std::uint16_t* from, std::int64_t pitch, std::uint32_t* to) {
  const PairTag d;
  const hn::RepartitionToWide<PairTag> wide;
  // Each 128-bit lane transposes a block of 4 x 4 pairs. Vector r has rows r, r + 4, r + 8 and r + 12, so the
  // lanes of a result hold the 16 rows in order.
  for (int q = 0; q < 4; ++q, from += 8, to += 4 * kTile) {
    const Pairs r0 = quads(from, pitch), r1 = quads(from + pitch, pitch), r2 = quads(from + 2 * pitch, pitch),
                r3 = quads(from + 3 * pitch, pitch);
    const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1)),
               high01 = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1)),
               low23 = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3)),
               high23 = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, low01, low23)), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23)), d, to + kTile);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, high01, high23)), d, to + 2 * kTile);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23)), d, to + 3 * kTile);
  }
}

/// Converts 32 rows to [16, 16 pairs], where a pair has elements of two rows.
HWY_INLINE void pair_rows(const std::uint16_t* from, std::int64_t pitch, std::uint32_t* to) {
  const PairTag d;
  for (std::int64_t k = 0; k < kTile; ++k, from += 2 * pitch, to += kTile) {
    const auto first = hn::PromoteTo(d, hn::LoadU(HalfTag(), from)),
               second = hn::PromoteTo(d, hn::LoadU(HalfTag(), from + pitch));
    hn::StoreU(hn::Or(first, hn::ShiftLeft<16>(second)), d, to);
  }
}

HWY_INLINE void copy_rows(const std::uint16_t* from, std::int64_t pitch, std::uint32_t* to) {
  for (std::int64_t r = 0; r < kTile; ++r, from += pitch, to += kTile)
    hn::StoreU(hn::LoadU(PairTag(), reinterpret_cast<const std::uint32_t*>(from)), PairTag(), to);
}

/// Packs one tile of 16 rows or columns. Pairs of terms are in its rows, or in its columns if `transposed`.
HWY_INLINE void pack_tile(const std::uint16_t* from, std::int64_t pitch, bool across, bool transposed,
                          std::uint32_t* to) {
  if (!across) return transposed ? transpose_pairs(from, pitch, to) : copy_rows(from, pitch, to);
  if (transposed) return pair_rows(from, pitch, to);
  HWY_ALIGN std::uint32_t pairs[kTile * kTile];
  pair_rows(from, pitch, pairs);
  transpose_pairs(reinterpret_cast<const std::uint16_t*>(pairs), 2 * kTile, to);
}

HWY_INLINE void pack(const TileLines& a, bool transposed, bfloat16* tiles) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(a.data);
  std::int64_t pitch = a.pitch;
  const std::int64_t next = kTileSide * (a.across ? 1 : pitch);  // lines to pack next
  for (std::int64_t r = 0; r < a.lines; ++r) __builtin_prefetch(from + r * pitch + next);
  // Zeros in the padding add nothing to the sums.
  HWY_ALIGN std::uint16_t padded[kTileSide * kTileSide];
  if (a.lines < kTileSide || a.width < kTileSide) {
    std::fill_n(padded, kTileSide * kTileSide, std::uint16_t{0});
    for (std::int64_t r = 0; r < a.lines; ++r)
      std::memcpy(padded + r * kTileSide, from + r * pitch, static_cast<std::size_t>(a.width) * 2);
    from = padded;
    pitch = kTileSide;
  }
  pack_tile(from, pitch, a.across, transposed, reinterpret_cast<std::uint32_t*>(tiles));
  pack_tile(from + kTile * (a.across ? 1 : pitch), pitch, a.across, transposed,
            reinterpret_cast<std::uint32_t*>(tiles + kTileNumbers));
}
void PackLeft(const TileLines& lines, bfloat16* tiles) { pack(lines, false, tiles); }
void PackRight(const TileLines& lines, bfloat16* tiles) { pack(lines, true, tiles); }

// sums += left * right. In assembly, because Highway has no AMX operations.
template <int sums, int left, int right>
HWY_INLINE void add_products() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(left), "i"(right));
}

using SumTag = hn::FixedTag<float, kTile>;

/// Buffer of sums [32, 32], in four consecutive tiles. They are copied to rows of c while the next sums are
/// computed.
class PendingSums {
 public:
  PendingSums() = default;
  PendingSums(const float* sums, float* c, const cpu::TileScales& scales, std::int64_t pitch,
              std::int64_t rows, std::int64_t columns)
      : sums_(sums), c_(c), scales_(scales), pitch_(pitch), rows_(rows), columns_(columns) {}

  HWY_INLINE void write(std::int64_t until) {
    scales_.scale == nullptr ? write<false>(until) : write<true>(until);
  }

 private:
  template <bool scaled>
  HWY_INLINE void write(std::int64_t until) {
    const SumTag d;
    const auto left = hn::FirstN(d, static_cast<std::size_t>(std::min(columns_, kTile))),
               right = hn::FirstN(d, static_cast<std::size_t>(std::max<std::int64_t>(columns_ - kTile, 0)));
    const auto number = [&](const float* numbers, auto mask, std::int64_t i)
                            HWY_ATTR { return scaled ? hn::MaskedLoad(mask, d, numbers + i) : hn::Zero(d); };
    const auto scale0 = number(scales_.scale, left, 0), scale1 = number(scales_.scale, right, kTile),
               bias0 = number(scales_.bias, left, 0), bias1 = number(scales_.bias, right, kTile);
    const auto result = [](auto sum, auto scale, auto bias)
                            HWY_ATTR { return scaled ? scaled_product(sum, scale, bias) : sum; };
    for (until = std::min(until, rows_); row_ < until; ++row_) {
      const float* from = sums_ + (row_ / kTile * 2 * kTile + row_ % kTile) * kTile;
      float* to = c_ + row_ * pitch_;
      hn::BlendedStore(result(hn::Load(d, from), scale0, bias0), left, d, to);
      hn::BlendedStore(result(hn::Load(d, from + kTile * kTile), scale1, bias1), right, d, to + kTile);
    }
  }

  const float* sums_ = nullptr;
  float* c_ = nullptr;
  cpu::TileScales scales_;
  std::int64_t pitch_ = 0, rows_ = 0, columns_ = 0, row_ = 0;
};

/// Prefetches rows of the next product, some cache lines in each step.
class Ahead {
 public:
  explicit Ahead(const PackedProduct& t)
      : at_(reinterpret_cast<const char*>(t.next)),
        lines_(t.next == nullptr ? 0 : std::max<std::int64_t>(kTileSide * kTileSide / t.columns, 1)) {}
  HWY_INLINE void prefetch() {
    constexpr std::int64_t line = 64;
    for (std::int64_t i = 0; i < lines_; ++i, at_ += line) __builtin_prefetch(at_, 0, 2);
  }

 private:
  const char* at_;
  std::int64_t lines_;
};

/// Stores a tile of sums, which frees the tile for the next sums.
template <int tile>
HWY_INLINE void store_sums(float* sums) {
  store_tile<tile>(sums + tile * kTile * kTile, kTile * static_cast<std::int64_t>(sizeof(float)));
  clear_tile<tile>();
}

// Tiles 0 to 3 are the sums of 2 x 2 blocks of 16 x 16, tiles 4 and 5 the left factor, 6 and 7 the right one.
/// Adds 32 terms to [32, 32] sums. With the first terms, stores the previous sums, one tile while others
/// multiply.
template <bool first>
HWY_INLINE void add_terms(const cpu::TileRows& left, const bfloat16* right, float* before) {
  constexpr std::int64_t row = 64;
  const std::int64_t left_row = left.pitch * static_cast<std::int64_t>(sizeof(bfloat16));
  load_tile<4>(left.data, left_row);
  load_tile<6>(right, row);
  if constexpr (first) store_sums<0>(before);
  add_products<0, 4, 6>();
  load_tile<7>(right + kTileNumbers, row);
  if constexpr (first) store_sums<1>(before);
  add_products<1, 4, 7>();
  load_tile<5>(left.data + left.below, left_row);
  if constexpr (first) store_sums<2>(before);
  add_products<2, 5, 6>();
  if constexpr (first) store_sums<3>(before);
  add_products<3, 5, 7>();
}

/// Prefetches rows [begin, end) of 32 columns for writing.
HWY_INLINE void prefetch_rows(const float* c, std::int64_t pitch, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < std::min(end, kTileSide); ++r) {
    __builtin_prefetch(c + r * pitch, 1, 2);
    __builtin_prefetch(c + r * pitch + kTile, 1, 2);
  }
}

void MultiplyTiles(const PackedProduct& t) {
  const Tiles tiles{TileShapes()};
  // The previous result is copied in pieces during the steps of the next one, so that stores overlap with
  // multiplication.
  const std::int64_t steps = t.terms / kTileSide, at_once = (kTileSide + steps - 1) / steps;
  HWY_ALIGN float sums[kTileSide * kTileSide];
  PendingSums pending;
  Ahead ahead(t);
  for (std::int64_t i = 0; i < (t.down ? t.rows : t.columns); i += kTileSide) {
    const std::int64_t row = t.down ? i : 0, column = t.down ? 0 : i;
    float* c = t.c + row * t.pitch + column;
    cpu::TileRows left = t.left;
    left.data += row / kTileSide * left.far;
    const bfloat16* right = t.right + column * t.terms;
    for (std::int64_t k = 0; k < steps; ++k, left.data += left.step, right += 2 * kTileNumbers) {
      k == 0 ? add_terms<true>(left, right, sums) : add_terms<false>(left, right, sums);
      pending.write((k + 1) * at_once);
      ahead.prefetch();
      prefetch_rows(c, t.pitch, k * at_once, (k + 1) * at_once);
    }
    pending = PendingSums(sums, c, t.scales.from(column), t.pitch, std::min(kTileSide, t.rows - row),
                          std::min(kTileSide, t.columns - column));
  }
  // The last result has no next product to overlap with.
  store_sums<0>(sums);
  store_sums<1>(sums);
  store_sums<2>(sums);
  store_sums<3>(sums);
  pending.write(kTileSide);
}
bool HasTiles() { return true; }
#else
void PackLeft(const cpu::TileLines&, bfloat16*) {}
void PackRight(const cpu::TileLines&, bfloat16*) {}
void MultiplyTiles(const cpu::PackedProduct&) {}
bool HasTiles() { return false; }
#endif

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(PackLeft);
HWY_EXPORT(PackRight);
HWY_EXPORT(MultiplyTiles);
HWY_EXPORT(HasTiles);

namespace cpu {

void pack_left(const TileLines& lines, bfloat16* tiles) { HWY_DYNAMIC_DISPATCH(PackLeft)(lines, tiles); }
void pack_right(const TileLines& lines, bfloat16* tiles) { HWY_DYNAMIC_DISPATCH(PackRight)(lines, tiles); }
void multiply_tiles(const PackedProduct& rows) { HWY_DYNAMIC_DISPATCH(MultiplyTiles)(rows); }
bool has_tiles() { return HWY_DYNAMIC_DISPATCH(HasTiles)(); }

}  // namespace cpu
}  // namespace fq
#endif
