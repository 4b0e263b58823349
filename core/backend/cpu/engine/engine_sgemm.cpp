#include <algorithm>

#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engine/onednn.h"
#include "fakequant/core/detail/threads.h"

namespace fq::cpu {
namespace {

constexpr std::int64_t kBlock = 32;  // side of a transposed block: whole cache lines

/// Transposes one block through a buffer: rows a power of two apart would evict each other from the cache.
void transpose_block(const float* from, std::int64_t rows, std::int64_t columns, std::int64_t r0,
                     std::int64_t c0, float* to, std::int64_t pitch) {
  // The extra column puts the elements of a column into different cache sets.
  float buffer[kBlock][kBlock + 1];
  const std::int64_t high = std::min(kBlock, rows - r0), wide = std::min(kBlock, columns - c0);
  for (std::int64_t r = 0; r < high; ++r)
    for (std::int64_t c = 0; c < wide; ++c) buffer[c][r] = from[(r0 + r) * columns + c0 + c];
  for (std::int64_t c = 0; c < wide; ++c) std::copy_n(buffer[c], high, to + (c0 + c) * pitch + r0);
}

/// Transposes `from` [rows, columns] to `to` [columns, rows], with rows `pitch` apart.
void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to, std::int64_t pitch) {
#pragma omp parallel for collapse(2) schedule(static) if (rows * columns > 65536)
  for (std::int64_t r = 0; r < rows; r += kBlock)
    for (std::int64_t c = 0; c < columns; c += kBlock) transpose_block(from, rows, columns, r, c, to, pitch);
}

constexpr std::int64_t kUses = 128;  // uses per element above which the memory layout matters

/// Multiplies floats into c [m, n], with rows `pitch` apart.
void multiply(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t n, float* c,
              std::int64_t pitch) {
  const auto wide = [](const Matrix& matrix) { return matrix.transposed ? matrix.rows : matrix.columns; };
  static_cast<void>(detail::threads());  // oneDNN waits for the number of threads that OpenMP reports
  const HeldSignals held;
  const auto status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, a.columns, 1.0f,
                                 static_cast<const float*>(a.data), wide(a),
                                 static_cast<const float*>(b.data), wide(b), 0.0f, c, pitch);
  dnnl::error::wrap_c_api(status, "sgemm");
}

Matrix transposed_view(const Matrix& matrix) {
  return {matrix.data, matrix.dtype, matrix.columns, matrix.rows, !matrix.transposed};
}

}  // namespace

bool primitives_want_sums_along_memory() {
  static const bool wanted = dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx512_core;
  return wanted;
}

bool sgemm_is_faster(const Matrix& a, const Matrix& b) {
  const bool across = (a.transposed && b.columns >= kUses) || (!b.transposed && a.rows >= kUses);
  return across && a.dtype == DType::f32 && primitives_want_sums_along_memory();
}

void sgemm(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t n, float* c, std::int64_t pitch) {
  // c^T = b^T * a^T: both factors of this product have sums along memory rows.
  if (!(a.transposed && !b.transposed && a.rows > b.columns)) return multiply(a, b, m, n, c, pitch);
  Storage storage(m * n * 4, Device::cpu());
  auto* other = reinterpret_cast<float*>(storage.mutable_data());
  multiply(transposed_view(b), transposed_view(a), n, m, other, m);
  transpose(other, n, m, c, pitch);
}

SpreadRows::SpreadRows(const Matrix& matrix, bool across, std::int64_t uses) : matrix_(matrix) {
  constexpr std::int64_t apart = 256, gap = 16;  // floats
  std::int64_t& wide = matrix.transposed ? matrix_.rows : matrix_.columns;
  const std::int64_t high = matrix.transposed ? matrix.columns : matrix.rows, length = wide;
  if (!across || uses < kUses || length == 0 || length % apart != 0) return;
  wide += gap;
  copy_ = Storage(high * wide * 4, Device::cpu());
  const auto* from = static_cast<const float*>(matrix.data);
  auto* to = reinterpret_cast<float*>(copy_.mutable_data());
#pragma omp parallel for schedule(static) if (high * length > 65536)
  for (std::int64_t r = 0; r < high; ++r) std::copy_n(from + r * length, length, to + r * (length + gap));
  matrix_.data = to;
}

}  // namespace fq::cpu
