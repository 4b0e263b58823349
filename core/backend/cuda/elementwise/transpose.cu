#include "fakequant/core/backend/cuda/elementwise/transpose.h"
#include "fakequant/core/backend/cuda/loops/launch.cuh"

namespace fq::cuda {
namespace {

/// By tiles: both sides of memory see whole lines.
template <class Word>
struct Transpose {
  static constexpr int phases = 2, side = 32, lines = block_threads / side;
  struct Shared {
    Word tile[side][side + 1];
  };
  const Word* x;
  Word* y;
  std::int64_t rows, columns, tiles_down, tiles_across;

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const std::int64_t image = t.block / (tiles_down * tiles_across),
                       tile = t.block % (tiles_down * tiles_across);
    const std::int64_t r0 = tile / tiles_across * side, c0 = tile % tiles_across * side;
    const Word* from = x + image * rows * columns;
    Word* to = y + image * rows * columns;
    const int i = t.thread % side;
    for (int j = t.thread / side; j < side; j += lines) {
      if (Phase == 0 && r0 + j < rows && c0 + i < columns)
        shared.tile[j][i] = from[(r0 + j) * columns + c0 + i];
      if (Phase == 1 && c0 + j < columns && r0 + i < rows) to[(c0 + j) * rows + r0 + i] = shared.tile[i][j];
    }
  }
};

template <class Word>
void transpose_words(const void* x, void* y, std::int64_t images, std::int64_t rows, std::int64_t columns,
                     Device device) {
  constexpr std::int64_t side = Transpose<Word>::side;
  const std::int64_t down = (rows + side - 1) / side, across = (columns + side - 1) / side;
  for_blocks(
      device, images * down * across,
      Transpose<Word>{static_cast<const Word*>(x), static_cast<Word*>(y), rows, columns, down, across});
}

}  // namespace

void transpose(const void* x, void* y, int bits, std::int64_t images, std::int64_t rows, std::int64_t columns,
               Device device) {
  switch (bits) {
    case 8:
      return transpose_words<std::uint8_t>(x, y, images, rows, columns, device);
    case 16:
      return transpose_words<std::uint16_t>(x, y, images, rows, columns, device);
    case 32:
      return transpose_words<std::uint32_t>(x, y, images, rows, columns, device);
    default:
      return transpose_words<std::uint64_t>(x, y, images, rows, columns, device);
  }
}

}  // namespace fq::cuda
