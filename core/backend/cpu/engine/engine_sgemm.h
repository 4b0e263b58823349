#pragma once

/// oneDNN's sgemm, which reads factors in any order as fast; included by engine sources only.

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/storage.h"

namespace fq::cpu {

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
