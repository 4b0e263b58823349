#pragma once

/// Products of bf16 by AMX tiles, for 32 rows and 32 columns at a time.

#include <cstdint>

#include "fakequant/core/dtype.h"

namespace fq::cpu {

/// Rows, columns and terms of a step.
inline constexpr std::int64_t kTileSide = 32;
/// bf16 numbers in a packed tile of 16 rows or columns.
inline constexpr std::int64_t kTileNumbers = 512;

/// Input of packing: `lines` lines of `width` numbers in memory, `pitch` numbers apart, at most 32 of each.
/// Sums run along the lines, or `across` them. Missing numbers are 0.
struct TileLines {
  const bfloat16* data;
  std::int64_t pitch, lines, width;
  bool across;
};
/// Pack 32 rows of the left factor, or 32 columns of the right factor, with 32 terms each, into two
/// consecutive tiles.
void pack_left(const TileLines& lines, bfloat16* tiles);
void pack_right(const TileLines& lines, bfloat16* tiles);

/// Scaling c[r, n] = fl(c[r, n] * scale[n]) + bias[n], if scales are given.
struct TileScales {
  const float *scale = nullptr, *bias = nullptr;
  [[nodiscard]] TileScales from(std::int64_t column) const {
    return scale == nullptr ? *this : TileScales{scale + column, bias + column};
  }
};
/// Addresses of tiles of rows: distances in numbers to the next row (`pitch`), the next 16 rows (`below`),
/// the next 32 terms (`step`) and the next 32 rows (`far`).
struct TileRows {
  const bfloat16* data;
  std::int64_t pitch, below, step, far;

  /// Returns the addresses in the output of `pack_left`.
  [[nodiscard]] static TileRows packed(const bfloat16* tiles, std::int64_t terms) {
    return {tiles, kTileSide, kTileNumbers, 2 * kTileNumbers, terms * kTileSide};
  }
  /// Returns the addresses of whole tiles in row-major memory.
  [[nodiscard]] static TileRows unpacked(const bfloat16* rows, std::int64_t pitch) {
    return {rows, pitch, pitch * kTileSide / 2, kTileSide, pitch * kTileSide};
  }
};
/// Product c [rows, columns], with rows `pitch` apart, of packed factors. The tiles with the terms of a row
/// or column are consecutive. One of the two sizes is unlimited: the columns or, with `down`, the rows; its
/// tiles are consecutive, too. The other size is at most 32.
struct PackedProduct {
  TileRows left;
  const bfloat16* right;
  std::int64_t terms;  ///< a multiple of 32
  bool down;
  float* c;
  TileScales scales;
  std::int64_t pitch, rows, columns;
  const bfloat16* next = nullptr;  ///< 32 consecutive rows of the next product, for prefetching
};
void multiply_tiles(const PackedProduct& product);
/// Returns whether this build and this processor support the tile kernels.
[[nodiscard]] bool has_tiles();

}  // namespace fq::cpu
