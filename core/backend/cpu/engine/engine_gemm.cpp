#include <algorithm>
#include <optional>

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engine/engine_call.h"
#include "fakequant/core/backend/cpu/engine/engine_sgemm.h"
#include "fakequant/core/backend/cpu/engine/threads.h"

namespace fq::cpu {
namespace {

using namespace onednn;

/// How c is cut, by the sizes alone.
struct Tiling {
  std::int64_t rows, columns;  // of one tile
  std::int64_t down, across;   // tiles

  static Tiling of(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch) {
    std::int64_t rows = m, columns = n, tiles = batch;
    while (rows * columns * k > (std::int64_t{1} << 19)) {
      auto& longer = rows >= columns ? rows : columns;
      const std::int64_t half = (longer / 2 + 31) / 32 * 32;
      if (half < (tiles < 16 ? 64 : 256)) break;
      longer = half;
      tiles *= 2;
    }
    return {rows, columns, (m + rows - 1) / rows, (n + columns - 1) / columns};
  }
};

Dims strides_of(const Matrix& matrix) {
  return matrix.transposed ? Dims{1, matrix.rows} : Dims{matrix.columns, 1};
}

const void* at(const Matrix& matrix, std::int64_t row, std::int64_t column) {
  const Dims s = strides_of(matrix);
  return static_cast<const char*>(matrix.data) + byte_size(matrix.dtype, row * s[0] + column * s[1]);
}

/// The product of the tiles of one size.
struct TileProduct {
  std::int64_t m = 0, n = 0;
  Desc a, b, c;
  std::optional<Call> call;

  void prepare(const Matrix& left, const Matrix& right, std::int64_t rows, std::int64_t columns) {
    if (call && m == rows && n == columns) return;
    m = rows;
    n = columns;
    a = Desc({m, left.columns}, type_of(left.dtype), strides_of(left));
    b = Desc({left.columns, n}, type_of(right.dtype), strides_of(right));
    c = Desc({m, n}, product_type(type_of(left.dtype)), Dims{right.columns, 1});
    call.emplace(matmul(engine(), attributes(), a, b, c));
  }
  void run(const void* x, const void* y, void* z) const {
    call->run({{DNNL_ARG_SRC, a, x}, {DNNL_ARG_WEIGHTS, b, y}, {DNNL_ARG_DST, c, z}});
  }
};

/// Whole products, one after another: each is shared among the threads by oneDNN.
void at_once(const Matrix& a, const Matrix& b, char* c, std::int64_t batch) {
  constexpr std::int64_t word = 4;
  TileProduct product;
  product.prepare(a, b, a.rows, b.columns);
  for (std::int64_t i = 0; i < batch; ++i)
    product.run(static_cast<const char*>(a.data) + byte_size(a.dtype, i * a.rows * a.columns),
                static_cast<const char*>(b.data) + byte_size(b.dtype, i * b.rows * b.columns),
                c + i * a.rows * b.columns * word);
}

}  // namespace

void gemm(const Matrix& left, const Matrix& right, void* c, std::int64_t batch, Sharing sharing) {
  constexpr std::int64_t word = 4;
  const std::int64_t m = left.rows, n = right.columns, k = left.columns;
  if (m * n * batch == 0) return;
  if (k == 0) {
    std::fill_n(static_cast<char*>(c), m * n * batch * word, char{0});
    return;
  }
  const bool by_sgemm = sgemm_is_faster(left, right);
  const SpreadRows by_rows(left, by_sgemm && batch == 1 && left.transposed, n),
      by_columns(right, by_sgemm && batch == 1 && !right.transposed, m);
  const Matrix &a = by_rows.matrix(), &b = by_columns.matrix();
  const bool whole = sharing == Sharing::by_threads || product_type(type_of(a.dtype)) == Type::s32;
  if (whole && by_sgemm && batch == 1)
    return guarded("gemm", [&] { sgemm(a, b, m, n, static_cast<float*>(c), n); });
  if (whole && !by_sgemm && (batch == 1 || batch < detail::threads()))
    return guarded("gemm", [&] { at_once(a, b, static_cast<char*>(c), batch); });
  const Tiling tiling = Tiling::of(m, n, k, batch);
  const std::int64_t tiles = tiling.down * tiling.across;
  parallel_tasks<TileProduct>(batch * tiles, [&](TileProduct& product, std::int64_t task) {
    guarded("gemm", [&] {
      const std::int64_t i = task / tiles, tile = task % tiles;
      const std::int64_t row = tile / tiling.across * tiling.rows,
                         column = tile % tiling.across * tiling.columns;
      const std::int64_t rows = std::min(tiling.rows, m - row),
                         columns = std::min(tiling.columns, n - column);
      const void* x = static_cast<const char*>(at(a, row, 0)) + byte_size(a.dtype, i * m * k);
      const void* y = static_cast<const char*>(at(b, 0, column)) + byte_size(b.dtype, i * k * n);
      void* z = static_cast<char*>(c) + (i * m * n + row * n + column) * word;
      if (by_sgemm) {
        Matrix own_a = a, own_b = b;
        own_a.data = x;
        own_b.data = y;
        return sgemm(own_a, own_b, rows, columns, static_cast<float*>(z), n);
      }
      product.prepare(a, b, rows, columns);
      product.run(x, y, z);
    });
  });
}

}  // namespace fq::cpu
