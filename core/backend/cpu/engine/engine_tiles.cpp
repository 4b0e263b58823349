#include <algorithm>
#include <dnnl.hpp>

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engine/threads.h"
#include "fakequant/core/backend/cpu/engine/tile_kernels.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/storage.h"

namespace fq::cpu {
namespace {

/// Numbers of the smaller factor that fit into a cache.
constexpr std::int64_t kKeptNumbers = std::int64_t{1} << 20;

// Rounds up to whole steps of 32 rows, columns or terms.
std::int64_t whole(std::int64_t size) { return (size + kTileSide - 1) / kTileSide * kTileSide; }

// Memory only grows: each thread reuses it for all of its tasks.
/// Memory for tiles.
class Packed {
 public:
  bfloat16* of(std::int64_t numbers) {
    const std::int64_t bytes = numbers * bit_width(DType::bf16) / 8;
    if (storage_.bytes() >= bytes) return tiles_;
    storage_ = Storage(bytes, Device::cpu());
    return tiles_ = reinterpret_cast<bfloat16*>(storage_.mutable_data());
  }

 private:
  Storage storage_;
  bfloat16* tiles_ = nullptr;
};

/// One matrix of a batch, with memory rows `pitch` numbers apart.
struct View {
  const bfloat16* data;
  std::int64_t rows, columns, pitch;
  bool transposed;

  View(const Matrix& m, std::int64_t sides, std::int64_t i)
      : data(static_cast<const bfloat16*>(m.data) + i / sides * sides * m.rows * m.columns),
        rows(m.rows),
        columns(m.columns),
        pitch((m.transposed ? m.rows : m.columns) * m.beside),
        transposed(m.transposed) {
    // Side by side, the next matrix begins one matrix row later in the same memory row.
    data += i % sides * (m.beside > 1 ? pitch / m.beside : rows * columns);
  }
};

/// Calls f(memory, i) for all i, shared among the threads if `shared`.
template <class F>
void run_tasks(std::int64_t count, bool shared, Packed& memory, F&& f) {
  if (shared) return parallel_tasks<Packed>(count, f);
  for (std::int64_t i = 0; i < count; ++i) f(memory, i);
}

/// Rows of the left factor or columns of the right factor, as tiles.
class Lines {
 public:
  Lines(const View& view, bool left) : view_(view), left_(left) {}

  [[nodiscard]] std::int64_t count() const { return left_ ? view_.rows : view_.columns; }
  [[nodiscard]] std::int64_t terms() const { return left_ ? view_.columns : view_.rows; }

  /// Returns whether these rows of the left factor need no packing.
  [[nodiscard]] bool needs_no_packing(std::int64_t lines) const {
    return left_ && !across() && lines % kTileSide == 0 && terms() % kTileSide == 0;
  }
  [[nodiscard]] TileRows rows(std::int64_t line) const {
    return TileRows::unpacked(view_.data + line * view_.pitch, view_.pitch);
  }

  /// Packs all lines, in memory order.
  const bfloat16* pack(bool shared, Packed& memory) const {
    const std::int64_t length = whole(terms()), lines = whole(count()) / kTileSide,
                       steps = length / kTileSide;
    bfloat16* tiles = memory.of(whole(count()) * length);
    // Tasks follow the memory order of the factor, so that each reads consecutive rows.
    run_tasks(across() ? steps : lines, shared, memory, [&](Packed&, std::int64_t i) {
      for (std::int64_t j = 0; j < (across() ? lines : steps); ++j) {
        const std::int64_t line = (across() ? j : i) * kTileSide, term = (across() ? i : j) * kTileSide;
        pack(line, term, tiles + line * length);
      }
    });
    return tiles;
  }
  /// Packs at most 32 lines beginning with `line`.
  const bfloat16* pack(std::int64_t line, Packed& memory) const {
    bfloat16* tiles = memory.of(whole(terms()) * kTileSide);
    for (std::int64_t term = 0; term < terms(); term += kTileSide) pack(line, term, tiles);
    return tiles;
  }

 private:
  [[nodiscard]] bool across() const { return left_ == view_.transposed; }

  void pack(std::int64_t line, std::int64_t term, bfloat16* tiles) const {
    const std::int64_t high = std::min(kTileSide, count() - line), wide = std::min(kTileSide, terms() - term),
                       pitch = view_.pitch;
    const TileLines memory = across() ? TileLines{view_.data + term * pitch + line, pitch, wide, high, true}
                                      : TileLines{view_.data + line * pitch + term, pitch, high, wide, false};
    (left_ ? pack_left : pack_right)(memory, tiles + term * kTileSide);
  }

  View view_;
  bool left_;
};

struct Memory {
  Packed kept, passing;
};

/// Computes c, with rows `pitch` apart: 32 rows or columns at a time times the smaller factor, or times a
/// part of it if there are not enough tasks for the threads.
void multiply_views(const View& a, const View& b, float* c, std::int64_t pitch, const TileScales& scales,
                    bool shared, Memory& memory) {
  // The smaller factor is packed once and stays in the cache. The larger one is packed in strips of 32 lines,
  // each by the task that multiplies it.
  const bool down = a.rows < b.columns;
  const Lines left(a, true), right(b, false), &kept = down ? left : right, &passing = down ? right : left;
  const bool direct = kept.needs_no_packing(kept.count());
  const bfloat16* tiles = direct ? nullptr : kept.pack(shared, memory.kept);
  const std::int64_t strips = whole(passing.count()) / kTileSide, blocks = whole(kept.count()) / kTileSide;
  // Splits the smaller factor, too, if strips alone give less than two tasks per thread. Every output is
  // computed by one task, in the order of terms, so its bits do not depend on the split.
  const std::int64_t each = std::max<std::int64_t>(blocks * strips / (2 * detail::threads()), 1);
  const std::int64_t parts = shared ? (blocks + each - 1) / each : 1,
                     size = (blocks + parts - 1) / parts * kTileSide;
  run_tasks(strips * parts, shared, memory.passing, [&](Packed& own, std::int64_t task) {
    const std::int64_t line = task / parts * kTileSide, begin = task % parts * size;
    const std::int64_t some = std::min(kTileSide, passing.count() - line),
                       many = std::min(size, kept.count() - begin);
    if (many <= 0) return;
    const std::int64_t row = down ? begin : line, column = down ? line : begin;
    PackedProduct product{.left = {},
                          .right = nullptr,
                          .terms = whole(a.columns),
                          .down = down,
                          .c = c + row * pitch + column,
                          .scales = scales.from(column),
                          .pitch = pitch,
                          .rows = down ? many : some,
                          .columns = down ? some : many};
    const bool in_memory = down ? direct : left.needs_no_packing(some);
    if (in_memory) product.left = left.rows(row);
    if (down) {
      if (!in_memory) product.left = TileRows::packed(tiles + begin * product.terms, product.terms);
      product.right = right.pack(line, own);
    } else {
      if (!in_memory) product.left = TileRows::packed(left.pack(line, own), product.terms);
      // Prefetching assumes that the next 32 rows are consecutive in memory.
      if (in_memory && a.pitch == a.columns) product.next = left.rows(line + kTileSide).data;
      product.right = tiles + begin * product.terms;
    }
    multiply_tiles(product);
  });
}

}  // namespace

bool tiles_allowed() {
  // The flags of dnnl::cpu_isa are bit masks: each instruction set includes the bits of those below.
  constexpr auto amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
  static const bool allowed = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & amx) == amx;
  return allowed && has_tiles();
}

bool tiles_are_faster(const Matrix& a, const Matrix& b, Sharing sharing) {
  constexpr std::int64_t most = 1024;  // terms that oneDNN adds in one pass
  if (a.dtype != DType::bf16 || !tiles_allowed()) return false;
  const std::int64_t m = a.rows, n = b.columns, k = a.columns;
  // Up to 1024 terms, oneDNN adds in one pass, in order, and its bits are the same.
  const bool large = m >= 2 * kTileSide && n >= kTileSide && k >= kTileSide;
  return large && std::min(m, n) * k <= kKeptNumbers && (sharing == Sharing::by_threads || k <= most);
}

void multiply_by_tiles(const Matrix& a, const Matrix& b, float* c, const TileScales& scales) {
  Memory memory;
  multiply_views({a, 1, 0}, {b, 1, 0}, c, b.columns, scales, true, memory);
}

void multiply_by_tiles(const Matrix& a, const Matrix& b, float* c, std::int64_t batch,
                       std::int64_t c_beside) {
  const std::int64_t sides = std::max({a.beside, b.beside, c_beside}), m = a.rows, n = b.columns;
  parallel_tasks<Memory>(batch, [&](Memory& own, std::int64_t i) {
    float* first = c + i / sides * sides * m * n + i % sides * (c_beside > 1 ? n : m * n);
    multiply_views({a, sides, i}, {b, sides, i}, first, n * c_beside, {}, false, own);
  });
}

}  // namespace fq::cpu
