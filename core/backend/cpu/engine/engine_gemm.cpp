#include <algorithm>
#include <optional>

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engine/engine_call.h"
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

constexpr std::int64_t kBlock = 32;  // of a transpose: whole cache lines are read and written

/// One block through a buffer: rows a power of two apart would evict each other from the cache.
void transpose_block(const float* from, std::int64_t rows, std::int64_t columns, std::int64_t r0,
                     std::int64_t c0, float* to) {
  float buffer[kBlock][kBlock + 1];
  const std::int64_t high = std::min(kBlock, rows - r0), wide = std::min(kBlock, columns - c0);
  for (std::int64_t r = 0; r < high; ++r)
    for (std::int64_t c = 0; c < wide; ++c) buffer[c][r] = from[(r0 + r) * columns + c0 + c];
  for (std::int64_t c = 0; c < wide; ++c) std::copy_n(buffer[c], high, to + (c0 + c) * rows + r0);
}

/// to [columns, rows] = from [rows, columns].
void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
#pragma omp parallel for collapse(2) schedule(static) if (rows * columns > 65536)
  for (std::int64_t r = 0; r < rows; r += kBlock)
    for (std::int64_t c = 0; c < columns; c += kBlock) transpose_block(from, rows, columns, r, c, to);
}

constexpr std::int64_t kUses = 128;  // of each element, for a transpose to pay

/// oneDNN's AVX2 kernels are up to 2.5 times slower on factors whose sums run across memory, those of AVX-512
/// hardly.
bool kernels_want_sums_along_memory() {
  static const bool wanted = dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx512_core;
  return wanted;
}

/// A factor whose sums run along memory, where a transpose pays: as soon as each element is used often.
class AlongK {
 public:
  AlongK(const Matrix& matrix, bool wanted, std::int64_t uses, std::int64_t batch) : matrix_(matrix) {
    if (matrix.transposed == wanted || matrix.dtype != DType::f32 || uses < kUses) return;
    if (!kernels_want_sums_along_memory()) return;
    const std::int64_t size = matrix.rows * matrix.columns;
    storage_ = Storage(batch * size * 4, Device::cpu());
    auto* to = reinterpret_cast<float*>(storage_.mutable_data());
    const auto* from = static_cast<const float*>(matrix.data);
    const std::int64_t rows = wanted ? matrix.rows : matrix.columns,
                       columns = wanted ? matrix.columns : matrix.rows;
    for (std::int64_t i = 0; i < batch; ++i) transpose(from + i * size, rows, columns, to + i * size);
    matrix_.data = to;
    matrix_.transposed = wanted;
  }
  [[nodiscard]] const Matrix& get() const { return matrix_; }

 private:
  Storage storage_;
  Matrix matrix_;
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
  const AlongK a_along(left, false, n, batch), b_along(right, true, m, batch);
  const Matrix &a = a_along.get(), &b = b_along.get();
  const bool whole = sharing == Sharing::by_threads || product_type(type_of(a.dtype)) == Type::s32;
  if (whole && (batch == 1 || batch < detail::threads()))
    return guarded("gemm", [&] { at_once(a, b, static_cast<char*>(c), batch); });
  const Tiling tiling = Tiling::of(m, n, k, batch);
  const std::int64_t tiles = tiling.down * tiling.across;
  parallel_tasks<TileProduct>(batch * tiles, [&](TileProduct& product, std::int64_t task) {
    guarded("gemm", [&] {
      const std::int64_t i = task / tiles, tile = task % tiles;
      const std::int64_t row = tile / tiling.across * tiling.rows,
                         column = tile % tiling.across * tiling.columns;
      product.prepare(a, b, std::min(tiling.rows, m - row), std::min(tiling.columns, n - column));
      product.run(static_cast<const char*>(at(a, row, 0)) + byte_size(a.dtype, i * m * k),
                  static_cast<const char*>(at(b, 0, column)) + byte_size(b.dtype, i * k * n),
                  static_cast<char*>(c) + (i * m * n + row * n + column) * word);
    });
  });
}

}  // namespace fq::cpu
