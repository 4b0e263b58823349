#include <algorithm>
#include <limits>

#include "fakequant/core/backend/cpu/elementwise/function_kernels.h"
#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/cpu/norm/row_gradient_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cpu {
namespace {

/// Computes the exponentials p of a row and returns their sum before the division.
float powers(const float* row, std::int64_t n, float* p) { return powers_of_row(row, n, p).sum; }
double powers(const double* row, std::int64_t n, double* p) {
  const double largest = *std::max_element(row, row + n);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    // All scores masked: exp(-inf - -inf) would be NaN.
    p[i] = largest == -std::numeric_limits<double>::infinity() ? 0 : detail::softmax_power(row[i], largest);
    sum += p[i];
  }
  return sum;
}
void divide(float* row, std::int64_t n, float by) { divide_row(by, n, row); }
void divide(double* row, std::int64_t n, double by) {
  for (std::int64_t i = 0; i < n; ++i) row[i] /= by;
}

template <class T>
void weights_of_row(const detail::AttentionRows& rows, std::int64_t r, const T* mask, T* row) {
  const std::int64_t seen = rows.visible(r), step = rows.mask_strides[3];
  const T scale = static_cast<T>(rows.scale);
  const T* own = mask == nullptr ? nullptr : mask + rows.mask_offset(r);
  for (std::int64_t j = 0; j < seen; ++j)
    row[j] = detail::attention_score(row[j], scale, own == nullptr ? nullptr : own + j * step);
  // Causal rows see a prefix of the keys, so the softmax needs no mask for them.
  std::fill(row + seen, row + rows.keys, T{0});
  if (seen == 0) return;
  const T sum = powers(row, seen, row);
  // The sum is 0 only if a mask hides every key.
  if (sum != T{0}) divide(row, seen, sum);
}

}  // namespace

void attention_weights(const detail::AttentionRows& rows, const Tensor& mask, Tensor& scores) {
  const std::int64_t count = rows.keys == 0 ? 0 : scores.numel() / rows.keys;
  detail::visit_float(scores.dtype(), "attention", [&]<class T>(T) {
    const T* m = mask.defined() ? mask.data<T>() : nullptr;
    T* values = scores.mutable_data<T>();
    detail::parallel_for(count, count * rows.keys > parallel_elements,
                         [&](std::int64_t r) { weights_of_row(rows, r, m, values + r * rows.keys); });
  });
}

void attention_weights_backward(const Tensor& p, double scale, Tensor& dp) {
  const std::int64_t keys = p.dim(-1), count = keys == 0 ? 0 : p.numel() / keys;
  detail::visit_float(p.dtype(), "attention", [&]<class T>(T) {
    const T* probabilities = p.data<T>();
    T* gradients = dp.mutable_data<T>();
    const T by = static_cast<T>(scale);
#pragma omp parallel for schedule(static) if (count * keys > parallel_elements)
    for (std::int64_t r = 0; r < count; ++r)
      score_gradients(probabilities + r * keys, keys, by, gradients + r * keys);
  });
}

void rotate(const Tensor& x, const Tensor& table, const detail::Rotation& rotation, Tensor& y) {
  const std::int64_t width = rotation.width, count = width == 0 ? 0 : x.numel() / width;
  detail::visit_float(x.dtype(), "rotary", [&]<class T>(T) {
    const T *in = x.data<T>(), *angles = table.data<T>();
    T* out = y.mutable_data<T>();
#pragma omp parallel for schedule(static) if (x.numel() > parallel_elements)
    for (std::int64_t r = 0; r < count; ++r) {
      const T *from = in + r * width, *turn = angles + r % rotation.rows * rotation.pairs * 2;
      T* to = out + r * width;
      for (std::int64_t h = 0; h < rotation.heads; ++h, from += 2 * rotation.pairs, to += 2 * rotation.pairs)
        for (std::int64_t i = 0; i < rotation.pairs; ++i) {
          const std::int64_t a = rotation.left(i), b = rotation.right(i);
          // The rotation is orthogonal: its gradient is the rotation by the negative angle.
          const T sine = rotation.back ? -turn[2 * i + 1] : turn[2 * i + 1];
          const auto rotated_pair = detail::rotated(from[a], from[b], turn[2 * i], sine);
          to[a] = rotated_pair.left;
          to[b] = rotated_pair.right;
        }
      std::copy(from, in + (r + 1) * width, to);
    }
  });
}

}  // namespace fq::cpu
