#include <algorithm>
#include <optional>

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engine/onednn.h"
#include "fakequant/core/backend/cpu/engine/threads.h"

namespace fq::cpu {
namespace {

using namespace onednn;

constexpr std::int64_t kTerms = std::int64_t{1} << 22;  // per task of several products

/// Tiling of c, by the sizes alone. bf16 tiles have whole rows if enough tiles remain: oneDNN uses AMX only
/// for contiguous output, and is less than half as fast otherwise.
struct Tiling {
  std::int64_t rows, columns;  // size of one tile
  std::int64_t down, across;   // number of tiles
  std::int64_t together;       // one-tile matrices per task

  static Tiling of(const Matrix& a, const Matrix& b, std::int64_t batch) {
    const std::int64_t m = a.rows, n = b.columns, k = a.columns;
    const bool dense = a.dtype == DType::bf16;
    std::int64_t rows = m, columns = n, tiles = batch;
    // Halves tiles to at most 2^19 products. Below 16 tiles, smaller sides are accepted: many threads need
    // work.
    while (rows * columns * k > (std::int64_t{1} << 19)) {
      const bool few = tiles < 16, by_rows = dense && half(rows) >= (few ? 128 : 256);
      if (dense && !by_rows && !few) break;
      auto& longer = by_rows || rows >= columns ? rows : columns;
      if (half(longer) < (few ? 64 : 256)) break;
      longer = half(longer);
      tiles *= 2;
    }
    const std::int64_t down = tile_count(m, rows), across = tile_count(n, columns);
    // Small products of a batch share a call, but at least 16 tasks remain.
    const std::int64_t most = down * across > 1 ? 1 : std::max<std::int64_t>(batch / 16, 1);
    return {rows, columns, down, across, std::clamp<std::int64_t>(kTerms / (m * n * k), 1, most)};
  }
  // Tile sides are multiples of 32, the tile side of AMX and a multiple of all vectors.
  static std::int64_t half(std::int64_t size) { return (size / 2 + 31) / 32 * 32; }
  /// Returns the number of tiles. One remaining row or column is merged into the tile before it: oneDNN 3.7
  /// reads and writes wrong elements of a single row or column that is not contiguous.
  static std::int64_t tile_count(std::int64_t size, std::int64_t tile) {
    return std::max<std::int64_t>(size / tile + (size % tile > 1 ? 1 : 0), 1);
  }
  [[nodiscard]] std::int64_t tile_rows(std::int64_t i, std::int64_t m) const {
    return i + 1 < down ? rows : m - i * rows;
  }
  [[nodiscard]] std::int64_t tile_columns(std::int64_t j, std::int64_t n) const {
    return j + 1 < across ? columns : n - j * columns;
  }
};

/// Returns the strides of a matrix, or of consecutive matrices.
Dims matrix_strides(const Matrix& matrix) {
  const Dims within = matrix.transposed ? Dims{1, matrix.rows} : Dims{matrix.columns, 1};
  return {matrix.rows * matrix.columns, within[0], within[1]};
}

const void* at(const Matrix& matrix, std::int64_t i, std::int64_t row, std::int64_t column) {
  const Dims s = matrix_strides(matrix);
  return static_cast<const char*>(matrix.data) +
         byte_size(matrix.dtype, i * s[0] + row * s[1] + column * s[2]);
}

/// Returns the descriptor of one matrix or of several.
Desc described(Dims dims, Type type, Dims strides) {
  if (dims[0] > 1) return {dims, type, strides};
  return {Dims(dims.begin() + 1, dims.end()), type, Dims(strides.begin() + 1, strides.end())};
}

/// Product of tiles of one size.
// Each thread has its own, because scratch memory of a primitive must not be shared.
struct TileProduct {
  std::int64_t count = 0, m = 0, n = 0;
  Desc a, b, c;
  std::optional<Call> call;

  /// Prepares the product of `matrices` matrices at once. Each result has the bits of a separate product.
  void prepare(const Matrix& left, const Matrix& right, std::int64_t matrices, std::int64_t rows,
               std::int64_t columns) {
    if (call && count == matrices && m == rows && n == columns) return;
    call.reset();
    count = matrices;
    m = rows;
    n = columns;
    a = described({count, m, left.columns}, onednn_type(left.dtype), matrix_strides(left));
    b = described({count, left.columns, n}, onednn_type(right.dtype), matrix_strides(right));
    // A tile is read and written in place, so its strides are the strides of the whole matrices.
    c = described({count, m, n}, product_type(onednn_type(left.dtype)),
                  {left.rows * right.columns, right.columns, 1});
    call.emplace(matmul(engine(), attributes(), a, b, c));
  }
  void run(const void* x, const void* y, void* z) const {
    call->run({{DNNL_ARG_SRC, a, x}, {DNNL_ARG_WEIGHTS, b, y}, {DNNL_ARG_DST, c, z}});
  }
};

/// Returns the descriptor of matrices [batch / sides, sides], `beside` of them side by side.
Desc described(std::int64_t batch, std::int64_t sides, const Matrix& matrix, Type type) {
  const Dims one = matrix_strides(matrix);
  const std::int64_t step = matrix.beside, length = matrix.transposed ? matrix.rows : matrix.columns;
  const Dims strides{sides * one[0], step > 1 ? length : one[0], matrix.transposed ? 1 : step * length,
                     matrix.transposed ? step * length : 1};
  return {{batch / sides, sides, matrix.rows, matrix.columns}, type, strides};
}

// Four axes express both distances: matrices of one memory row, and memory rows. The heads of attention lie
// side by side in this way.
void side_by_side(const Matrix& a, const Matrix& b, const Matrix& c, std::int64_t batch) {
  const std::int64_t sides = std::max({a.beside, b.beside, c.beside});
  const Desc left = described(batch, sides, a, onednn_type(a.dtype)),
             right = described(batch, sides, b, onednn_type(b.dtype)),
             out = described(batch, sides, c, product_type(onednn_type(a.dtype)));
  Call(matmul(engine(), attributes(), left, right, out))
      .run({{DNNL_ARG_SRC, left, a.data}, {DNNL_ARG_WEIGHTS, right, b.data}, {DNNL_ARG_DST, out, c.data}});
}

/// Computes whole products, which oneDNN shares among the threads.
void multiply_whole(const Matrix& a, const Matrix& b, void* c, std::int64_t batch) {
  TileProduct product;
  product.prepare(a, b, batch, a.rows, b.columns);
  product.run(a.data, b.data, c);
}

/// Computes the products by sgemm, one after another.
void run_sgemm(Matrix a, Matrix b, std::int64_t m, std::int64_t n, float* c, std::int64_t batch) {
  for (std::int64_t i = 0; i < batch; ++i, c += m * n) {
    sgemm(a, b, m, n, c, n);
    a.data = at(a, 1, 0, 0);
    b.data = at(b, 1, 0, 0);
  }
}

}  // namespace

bool multiplies_side_by_side() { return !primitives_want_sums_along_memory(); }

void gemm(const Matrix& left, const Matrix& right, void* c, std::int64_t batch, Sharing sharing,
          std::int64_t c_beside) {
  constexpr std::int64_t word = 4;
  const std::int64_t m = left.rows, n = right.columns, k = left.columns;
  if (m * n * batch == 0) return;
  // An empty sum is 0, in f32 and in i32.
  if (k == 0) {
    std::fill_n(static_cast<char*>(c), m * n * batch * word, char{0});
    return;
  }
  const bool by_tiles = tiles_are_faster(left, right, sharing),
             beside = left.beside > 1 || right.beside > 1 || c_beside > 1;
  if (beside && by_tiles) return multiply_by_tiles(left, right, static_cast<float*>(c), batch, c_beside);
  if (beside)
    return guarded("gemm", [&] { side_by_side(left, right, {c, DType::f32, m, n, false, c_beside}, batch); });
  if (batch == 1 && by_tiles) return multiply_by_tiles(left, right, static_cast<float*>(c));
  const bool sgemms = sgemm_is_faster(left, right);
  // A copy of a factor pays only for one large product.
  const SpreadRows spread_left(left, sgemms && batch == 1 && left.transposed, n),
      spread_right(right, sgemms && batch == 1 && !right.transposed, m);
  const Matrix &a = spread_left.matrix(), &b = spread_right.matrix();
  // Integer sums have no order: the tiling by shape is only required for floats.
  const bool whole = sharing == Sharing::by_threads || product_type(onednn_type(a.dtype)) == Type::s32;
  if (whole)
    return guarded("gemm", [&] {
      sgemms ? run_sgemm(a, b, m, n, static_cast<float*>(c), batch) : multiply_whole(a, b, c, batch);
    });
  const Tiling tiling = Tiling::of(left, right, batch);
  const std::int64_t tiles = tiling.down * tiling.across, together = sgemms ? 1 : tiling.together;
  const std::int64_t tasks = (batch + together - 1) / together * tiles;
  parallel_tasks<TileProduct>(tasks, [&](TileProduct& product, std::int64_t task) {
    guarded("gemm", [&] {
      const std::int64_t i = task / tiles * together, tile = task % tiles;
      const std::int64_t down = tile / tiling.across, across = tile % tiling.across;
      const std::int64_t row = down * tiling.rows, column = across * tiling.columns;
      const std::int64_t rows = tiling.tile_rows(down, m), columns = tiling.tile_columns(across, n);
      const void *x = at(a, i, row, 0), *y = at(b, i, 0, column);
      void* z = static_cast<char*>(c) + (i * m * n + row * n + column) * word;
      if (sgemms) {
        Matrix own_a = a, own_b = b;
        own_a.data = x;
        own_b.data = y;
        return sgemm(own_a, own_b, rows, columns, static_cast<float*>(z), n);
      }
      product.prepare(a, b, std::min(together, batch - i), rows, columns);
      product.run(x, y, z);
    });
  });
}

}  // namespace fq::cpu
