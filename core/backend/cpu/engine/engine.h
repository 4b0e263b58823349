#pragma once

/// Products and convolutions of plain arrays through oneDNN.
///
/// The functions multiply and never scale: scale, bias, ReLU and rounding are not passed to oneDNN, whose
/// versions round them differently. Stateless and thread safe. The types of the factors select the engine:
/// f32*f32 -> f32, bf16*bf16 -> f32, i8*i8 -> i32, u8*i8 -> i32 (the first is the activation). Throws
/// BackendError if oneDNN fails or does not support the product on this processor.

#include <cstdint>

#include "fakequant/core/backend/cpu/engine/tile_kernels.h"
#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/storage.h"

namespace fq::cpu {

using detail::Sharing;
/// A matrix, or a batch of consecutive matrices. One of the strides is 1.
struct Matrix {
  const void* data;
  DType dtype;
  std::int64_t rows, columns;
  bool transposed = false;  ///< the memory holds [columns, rows], row-major
  std::int64_t beside = 1;  ///< matrices of a batch stored side by side: a memory row has one row of each
};

/// Computes c[i] = a[i] * b[i] for `batch` products of a [M, K] and b [K, N] into c [M, N], row-major, f32 or
/// i32. Threads share the rows and columns of c; with `by_shape`, K is never split. Matrices side by side, in
/// c `c_beside` of them, require `by_threads`. Their number divides the batch.
void gemm(const Matrix& a, const Matrix& b, void* c, std::int64_t batch = 1,
          Sharing sharing = Sharing::by_shape, std::int64_t c_beside = 1);
/// Returns whether matrices side by side are multiplied as fast as consecutive matrices.
[[nodiscard]] bool multiplies_side_by_side();

using detail::ConvShape;

/// Computes y = conv(x, w). x and y are in NHWC order, w in OIHW. Threads share the images.
void conv_forward(const ConvShape& shape, const void* x, DType x_type, const void* w, DType w_type, void* y,
                  Sharing sharing = Sharing::by_shape);
/// Computes dx, the transpose of `conv_forward` in x, applied to dy. Factors are f32 or bf16, dx is f32.
void conv_backward_data(const ConvShape& shape, const void* dy, const void* w, DType type, float* dx,
                        Sharing sharing = Sharing::by_shape);
/// Computes dw [o, c/groups, kh, kw], the transpose in w. Factors are f32 or bf16, dw is f32. Threads share
/// the sum over images: the last bits depend on the number of threads.
void conv_backward_weights(const ConvShape& shape, const void* x, const void* dy, DType type, float* dw);

// Products of bf16 by AMX tiles, without oneDNN: oneDNN writes results in pieces that evict each other from
// the cache.

/// Returns whether the processor has AMX and this process may use it. oneDNN requests it from the system
/// (ONEDNN_MAX_CPU_ISA applies).
[[nodiscard]] bool tiles_allowed();
/// Returns whether `multiply_by_tiles` is preferred for these factors. With `by_shape` this requires the bits
/// of oneDNN, which splits long sums.
[[nodiscard]] bool tiles_are_faster(const Matrix& a, const Matrix& b, Sharing sharing);
/// Computes c [m, n] of one product, with optional scales, in the order of terms: the same bits for any
/// number of threads.
void multiply_by_tiles(const Matrix& a, const Matrix& b, float* c, const TileScales& scales = {});
/// Multiplies a batch of matrices. Some may be stored side by side, see `gemm`.
void multiply_by_tiles(const Matrix& a, const Matrix& b, float* c, std::int64_t batch, std::int64_t c_beside);

// Float products by oneDNN's sgemm. Its speed does not depend on the memory order of the factors.

/// Returns whether primitives are slow if sums run across memory rows: up to 2.5 times slower with AVX2,
/// hardly slower with AVX-512.
[[nodiscard]] bool primitives_want_sums_along_memory();
/// Returns whether sgemm is faster than oneDNN's primitive: for floats whose sums run across memory rows,
/// below AVX-512.
[[nodiscard]] bool sgemm_is_faster(const Matrix& a, const Matrix& b);
/// Computes c [m, n], with rows `pitch` apart, from the first m rows of a and the first n columns of b. A
/// tall product of two factors with sums across memory rows is computed as its transpose, which takes half
/// the time.
void sgemm(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t n, float* c, std::int64_t pitch);

/// A factor in a layout that sgemm reads fast. If each element is read `uses` times, sums run across memory
/// rows, and these rows are a multiple of 1 KB apart, the rows evict each other from the cache. The factor is
/// then copied with a gap between its rows. Products have the same bits, at twice the speed for rows 4 KB
/// apart.
class SpreadRows {
 public:
  SpreadRows(const Matrix& matrix, bool across, std::int64_t uses);
  /// Returns the factor. Rows in memory may be longer than rows of the matrix.
  [[nodiscard]] const Matrix& matrix() const noexcept { return matrix_; }

 private:
  Storage copy_;
  Matrix matrix_;
};

}  // namespace fq::cpu
