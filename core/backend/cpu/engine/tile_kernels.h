#pragma once

/// Products of bf16 by the tiles of AMX, 32 rows and 32 columns at a time.

#include <cstdint>

#include "fakequant/core/dtype.h"

namespace fq::cpu {

/// Rows and columns of results at a time, and terms.
inline constexpr std::int64_t kTileSide = 32;
/// bf16 numbers in so many packed tiles of 16 rows or columns.
inline constexpr std::int64_t kTileNumbers = 512;

/// `lines` of memory, `pitch` numbers apart, of `width` each, at most 32 of each; sums run along the lines or
/// `across` them. What is missing is 0.
struct TileLines {
  const bfloat16* data;
  std::int64_t pitch, lines, width;
  bool across;
};
/// 32 rows of the left factor, or columns of the right, with 32 terms each, as two tiles behind each other.
void pack_left(const TileLines& lines, bfloat16* tiles);
void pack_right(const TileLines& lines, bfloat16* tiles);

/// c[r, n] = fl(c[r, n] * scale[n]) + bias[n], where there are any.
struct TileScales {
  const float *scale = nullptr, *bias = nullptr;
  [[nodiscard]] TileScales from(std::int64_t column) const {
    return scale == nullptr ? *this : TileScales{scale + column, bias + column};
  }
};
/// Tiles of rows with their terms: a row is `pitch` numbers from the next, 16 rows are `below` from the next,
/// 32 terms `step`, 32 rows `far`.
struct TileRows {
  const bfloat16* data;
  std::int64_t pitch, below, step, far;

  /// As `pack_left` makes them.
  [[nodiscard]] static TileRows packed(const bfloat16* tiles, std::int64_t terms) {
    return {tiles, kTileSide, kTileNumbers, 2 * kTileNumbers, terms * kTileSide};
  }
  /// As they are: whole tiles of row-major memory.
  [[nodiscard]] static TileRows in_memory(const bfloat16* rows, std::int64_t pitch) {
    return {rows, pitch, pitch * kTileSide / 2, kTileSide, pitch * kTileSide};
  }
};
/// c [rows, columns], whose rows lie `pitch` apart, of packed factors: a row or column has its terms in tiles
/// behind each other. Of one of the two sizes, the columns or, `down`, the rows, there may be any number,
/// whose tiles lie behind each other too, of the other at most 32.
struct PackedProduct {
  TileRows left;
  const bfloat16* right;
  std::int64_t terms;  ///< a multiple of 32
  bool down;
  float* c;
  TileScales scales;
  std::int64_t pitch, rows, columns;
  const bfloat16* next = nullptr;  ///< 32 rows that are read in the next product, behind each other
};
void multiply_tiles(const PackedProduct& product);
/// Whether this build and this processor's vectors have them.
[[nodiscard]] bool has_tiles();

}  // namespace fq::cpu
