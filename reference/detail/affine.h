#pragma once

/// Shared parts of affine fake quantization of the references: parameters by block and loops.

#include <vector>

#include "fakequant/reference/detail/float_blocks.h"

namespace fq::detail {

/// Parameters of the elements of one block, as f32.
struct AffineRow {
  float scale = 1, reciprocal = 1;
  float entry = 0;  ///< what meets the input: the zero point, or the value of the middle code
  float exit = 0;   ///< what meets the code on the way back: the zero point
};

/// Calls f(k, row) for k in [0, count) with the row of element k: rows[j + k * step], step 0 or 1.
template <class F>
void visit_rows(const std::vector<AffineRow>& rows, std::int64_t count, std::int64_t j, std::int64_t step,
                F&& f) {
  const AffineRow* first = rows.data() + j;
  if (step == 0) {
    const AffineRow row = *first;
    for (std::int64_t k = 0; k < count; ++k) f(k, row);
  } else {
    for (std::int64_t k = 0; k < count; ++k) f(k, first[k]);
  }
}

/// y[i] = f(x[i], row of i), rounded to `dtype`; on `meta` only the shape. Any layout of x, which y gets.
template <class F>
Tensor map_rows(const Tensor& x, const Shape& block, const std::vector<AffineRow>& rows, DType dtype, F&& f) {
  Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  if (x.device().is_meta()) return y;
  map_blocks(x.to(Layout::row_major), block, y,
             [&](const float* in, float* to, auto count, auto j, auto step) {
               visit_rows(rows, count, j, step, [&](auto k, const AffineRow& row) { to[k] = f(in[k], row); });
             });
  return y.to(x.layout());
}

/// Loop over two tensors of one shape: out[i] = f(x[i], dy[i], row of i, j), j being the number of the
/// block.
template <class F>
Tensor map_rows(const Tensor& x, const Tensor& dy, const Shape& block, const std::vector<AffineRow>& rows,
                DType dtype, F&& f) {
  Tensor out = Tensor::empty(x.shape(), dtype, x.device());
  if (x.device().is_meta()) return out;
  const Tensor other = dy.to(Layout::row_major);
  std::array<float, chunk_elements> buffer;
  map_blocks(x.to(Layout::row_major), block, out,
             [&, at = std::int64_t{0}](const float* in, float* to, auto count, auto j, auto step) mutable {
               const float* second = read_floats(other, at, count, buffer.data());
               at += count;
               visit_rows(rows, count, j, step, [&](auto k, const AffineRow& row) {
                 to[k] = f(in[k], second[k], row, j + k * step);
               });
             });
  return out.to(x.layout());
}

}  // namespace fq::detail
