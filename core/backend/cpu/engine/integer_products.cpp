#include "fakequant/core/backend/cpu/engine/integer_products.h"

#include <algorithm>
#include <cstring>

#include "fakequant/core/backend/cpu/engine/int16_kernels.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {
namespace {

using detail::Codes;

constexpr std::int64_t kTaskRows = 64;      // rows per task
constexpr std::int64_t kFew = 1 << 16;      // too few products for several threads
constexpr std::int64_t kUnwidenedRows = 2;  // at most this many rows of x: w is not widened

// Rows of whole vectors need no loop for the last elements. The padding is 0.
std::int64_t int16_pitch(std::int64_t k) {
  return (k + kInt16Multiple - 1) / kInt16Multiple * kInt16Multiple;
}

void widen_rows(const Codes& codes, std::int64_t first, std::int64_t rows, std::int64_t k,
                std::int16_t* values) {
  const std::int64_t pitch = int16_pitch(k);
  if (codes.dtype == DType::u8)
    widen_codes(static_cast<const std::uint8_t*>(codes.data) + first * k, rows, k, pitch, values);
  else
    widen_codes(static_cast<const std::int8_t*>(codes.data) + first * k, rows, k, pitch, values);
}

Tensor int16_codes(const Codes& codes, std::int64_t rows, std::int64_t k) {
  Tensor out = Tensor::empty({rows, int16_pitch(k)}, DType::i16);
  auto* values = out.mutable_data<std::int16_t>();
  if (rows <= kTaskRows) {
    widen_rows(codes, 0, rows, k, values);
    return out;
  }
#pragma omp parallel for schedule(static) if (rows * k > kFew)
  for (std::int64_t r = 0; r < rows; r += kTaskRows)
    widen_rows(codes, r, std::min(kTaskRows, rows - r), k, values + r * int16_pitch(k));
  return out;
}

void few_rows(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
              std::int32_t* sums) {
  const Tensor values = int16_codes(x, m, k);
  for (std::int64_t r = 0; r < m; ++r)
    multiply_row(values.data<std::int16_t>() + r * int16_pitch(k), static_cast<const std::int8_t*>(w.data), n,
                 k, sums + r * n);
}

Codes tail_codes(const Codes& codes, std::int64_t first) {
  return {static_cast<const char*>(codes.data) + first, codes.dtype, codes.largest};
}

/// Calls `multiply(i, row, rows)` for row parts of each of `batch` products, on all threads.
template <class F>
void visit_row_parts(std::int64_t batch, std::int64_t m, std::int64_t products, F&& multiply) {
  const std::int64_t parts = (m + kTaskRows - 1) / kTaskRows;
#pragma omp parallel for schedule(static) if (batch * products > kFew)
  for (std::int64_t task = 0; task < batch * parts; ++task) {
    const std::int64_t row = task % parts * kTaskRows;
    multiply(task / parts, row, std::min(kTaskRows, m - row));
  }
}

}  // namespace

void int16_products(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                    std::int32_t* sums) {
  int16_products(1, m, n, k, x, w, sums);
}

void int16_products(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x,
                    const Codes& w, std::int32_t* sums) {
  if (m * n * batch == 0) return;
  // SDOT reads the codes in place, without widening.
  if (has_dot_products())
    return visit_row_parts(batch, m, m * n * k, [&](std::int64_t i, std::int64_t row, std::int64_t rows) {
      dot_products(rows, n, k, tail_codes(x, (i * m + row) * k), tail_codes(w, i * n * k),
                   sums + (i * m + row) * n);
    });
  if (batch == 1 && m <= kUnwidenedRows && w.dtype == DType::i8) return few_rows(m, n, k, x, w, sums);
  const Tensor left = int16_codes(x, batch * m, k), right = int16_codes(w, batch * n, k);
  const std::int64_t pitch = int16_pitch(k);
  const auto *a = left.data<std::int16_t>(), *b = right.data<std::int16_t>();
  visit_row_parts(batch, m, m * n * k, [&](std::int64_t i, std::int64_t row, std::int64_t rows) {
    multiply_int16(
        {a + (i * m + row) * pitch, b + i * n * pitch, rows, n, pitch, sums + (i * m + row) * n, n});
  });
}

namespace {

using detail::Codes;
using detail::ConvShape;

constexpr std::int64_t kShortFilter = 32;      // codes: shorter filters leave most of a vector empty
constexpr std::int64_t kPatchBytes = 1 << 17;  // bytes of the pixels per step
constexpr std::int64_t kFewPixels = 16, kManyPixels = 1024;

std::int64_t filter_length(const ConvShape& s) { return s.c / s.groups * s.kh * s.kw; }

/// Returns the filters [o, c/groups, kh, kw] as [o, kh, kw, c/groups], the order of a patch.
Tensor patch_filters(const ConvShape& s, const Codes& w) {
  const std::int64_t channels = s.c / s.groups, taps = s.kh * s.kw;
  Tensor out = Tensor::empty({s.o, taps * channels}, w.dtype);
  const auto* from = static_cast<const char*>(w.data);
  auto* to = static_cast<char*>(out.mutable_raw());
  for (std::int64_t o = 0; o < s.o; ++o, from += channels * taps, to += channels * taps)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t t = 0; t < taps; ++t) to[t * channels + c] = from[c * taps + t];
  return out;
}

/// Gathers the input of a group's filters for one output pixel. Pixels are counted over all images.
// x: [n, h, w, c]. The order of a patch is (kh, kw, channel), because channels are contiguous in x.
void gather(const ConvShape& s, const char* x, std::int64_t pixel, std::int64_t group, char* to) {
  const auto channels = static_cast<std::size_t>(s.c / s.groups);
  const std::int64_t left = pixel % s.ow * s.stride[1] - s.padding[1];
  const std::int64_t top = pixel / s.ow % s.oh * s.stride[0] - s.padding[0];
  const char* image = x + pixel / (s.ow * s.oh) * s.h * s.w * s.c + group * (s.c / s.groups);
  for (std::int64_t i = 0; i < s.kh; ++i)
    for (std::int64_t j = 0; j < s.kw; ++j, to += channels) {
      const std::int64_t row = top + i * s.dilation[0], column = left + j * s.dilation[1];
      if (row < 0 || row >= s.h || column < 0 || column >= s.w)
        std::memset(to, 0, channels);
      else
        std::memcpy(to, image + (row * s.w + column) * s.c, channels);
    }
}

/// Computes the sums of one group for the pixels beginning with `first`.
void convolve(const ConvShape& s, const Codes& x, const Tensor& filters, std::int64_t first,
              std::int64_t pixels, std::int64_t group, std::int32_t* sums) {
  const std::int64_t length = filter_length(s), outputs = s.o / s.groups;
  Tensor patches = Tensor::empty({pixels, length}, x.dtype);
  auto* rows = static_cast<char*>(patches.mutable_raw());
  for (std::int64_t p = 0; p < pixels; ++p)
    gather(s, static_cast<const char*>(x.data), first + p, group, rows + p * length);
  const Codes left{rows, x.dtype, x.largest};
  const Codes right{static_cast<const char*>(filters.raw()) + group * outputs * length, filters.dtype(), 0};
  // sums: [n, oh, ow, o]. The rows of one group are not contiguous in it.
  if (s.groups == 1) return int16_products(pixels, outputs, length, left, right, sums + first * s.o);
  Tensor part = Tensor::empty({pixels, outputs}, DType::i32);
  int16_products(pixels, outputs, length, left, right, part.mutable_data<std::int32_t>());
  for (std::int64_t p = 0; p < pixels; ++p)
    std::copy_n(part.data<std::int32_t>() + p * outputs, outputs, sums + (first + p) * s.o + group * outputs);
}

}  // namespace

bool uses_patches(const ConvShape& shape) {
  return has_dot_products() && filter_length(shape) >= kShortFilter;
}

void convolve_patches(const ConvShape& s, const Codes& x, const Codes& w, std::int32_t* sums) {
  const std::int64_t all = s.n * s.oh * s.ow, length = std::max<std::int64_t>(filter_length(s), 1);
  // The patches of a step fit into the second-level cache and are multiplied at once.
  const std::int64_t step = std::clamp(kPatchBytes / length, kFewPixels, kManyPixels);
  const std::int64_t parts = (all + step - 1) / step;
  const Tensor filters = patch_filters(s, w);
#pragma omp parallel for schedule(static)
  for (std::int64_t task = 0; task < parts * s.groups; ++task) {
    const std::int64_t first = task % parts * step;
    convolve(s, x, filters, first, std::min(step, all - first), task / parts, sums);
  }
}

}  // namespace fq::cpu
