#pragma once

/// The multiplier: products and convolutions of plain arrays through oneDNN.
///
/// It multiplies and never scales: no scale, bias, ReLU or rounding is given to oneDNN, whose versions round
/// those differently. Stateless; may be called from several threads. The factors' types select the engine:
/// f32*f32 -> f32, bf16*bf16 -> f32, i8*i8 -> i32, u8*i8 -> i32 (the first is the activation).
/// Throws BackendError when oneDNN fails or has no such product on this processor.

#include <cstdint>

#include "fakequant/core/backend/cpu/engine/tile_kernels.h"
#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/storage.h"

namespace fq::cpu {

using detail::Sharing;
/// A matrix, or a batch of them behind each other. One of the strides is 1.
struct Matrix {
  const void* data;
  DType dtype;
  std::int64_t rows, columns;
  bool transposed = false;  ///< the memory holds [columns, rows], row-major
  std::int64_t beside = 1;  ///< so many of a batch lie side by side: a row in memory is one of each
};

/// c[i] = a[i] * b[i] for `batch` products of a [M, K] and b [K, N] into c [M, N], row-major, f32 or i32.
/// Rows and columns of c are shared among threads; by shape, K never is. Matrices side by side, of c
/// `c_beside`, which divide the batch, are for `by_threads`.
void gemm(const Matrix& a, const Matrix& b, void* c, std::int64_t batch = 1,
          Sharing sharing = Sharing::by_shape, std::int64_t c_beside = 1);
/// Whether matrices side by side are multiplied as fast as those behind each other.
[[nodiscard]] bool multiplies_side_by_side();

using detail::ConvShape;

/// y = conv(x, w). x and y in NHWC, w in OIHW order. Images are shared among threads.
void conv_forward(const ConvShape& shape, const void* x, DType x_type, const void* w, DType w_type, void* y,
                  Sharing sharing = Sharing::by_shape);
/// dx = the transpose of `conv_forward` in x, applied to dy; f32 or bf16 factors, dx f32.
void conv_backward_data(const ConvShape& shape, const void* dy, const void* w, DType type, float* dx,
                        Sharing sharing = Sharing::by_shape);
/// dw [o, c/groups, kh, kw] = the transpose in w; f32 or bf16 factors, dw f32. The sum over images is shared
/// among threads: its last bits depend on their number.
void conv_backward_weights(const ConvShape& shape, const void* x, const void* dy, DType type, float* dw);

// Products of bf16 by AMX tiles, without oneDNN, which writes results in pieces that evict each other from the
// cache.

/// Whether the processor has AMX and the system lets this process use it, which oneDNN has asked
/// (ONEDNN_MAX_CPU_ISA applies).
[[nodiscard]] bool tiles_allowed();
/// Whether `multiply_by_tiles` is for these; by shape where it has the bits of oneDNN, which splits long
/// sums.
[[nodiscard]] bool tiles_are_faster(const Matrix& a, const Matrix& b, Sharing sharing);
/// c [m, n] of one product, scaled if need be, in the order of terms: the same bits for any number of
/// threads.
void multiply_by_tiles(const Matrix& a, const Matrix& b, float* c, const TileScales& scales = {});
/// A batch of matrices, of which some may lie side by side: see `gemm`.
void multiply_by_tiles(const Matrix& a, const Matrix& b, float* c, std::int64_t batch, std::int64_t c_beside);

// Float products by oneDNN's sgemm, whose speed does not depend on the memory order of the factors.

/// oneDNN's AVX2 primitives are up to 2.5 times slower on factors whose sums run across memory, those of
/// AVX-512 hardly.
[[nodiscard]] bool primitives_want_sums_along_memory();
/// Whether it multiplies these faster than oneDNN's primitive: floats whose sums run across memory, below
/// AVX-512.
[[nodiscard]] bool sgemm_is_faster(const Matrix& a, const Matrix& b);
/// c [m, n], whose rows are `pitch` apart, of the first m rows of a and the first n columns of b. A tall
/// product of two factors across memory is made as its transpose, which takes half the time.
void sgemm(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t n, float* c, std::int64_t pitch);

/// A factor as sgemm reads it fast: one of `uses` reads of each element, whose sums run across rows of memory
/// that lie a multiple of 1 KB apart and so evict each other from the cache, is copied with some bytes
/// between its rows. Products have the same bits, and twice the speed where rows are 4 KB apart.
class SpreadRows {
 public:
  SpreadRows(const Matrix& matrix, bool across, std::int64_t uses);
  /// Its memory's rows may be longer than the matrix is.
  [[nodiscard]] const Matrix& matrix() const noexcept { return matrix_; }

 private:
  Storage copy_;
  Matrix matrix_;
};

}  // namespace fq::cpu
