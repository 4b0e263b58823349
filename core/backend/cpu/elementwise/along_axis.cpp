#include <algorithm>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/walk.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/detail/moves.h"

namespace fq::cpu {
namespace {

using detail::memory_view;
using Elements = std::vector<std::int64_t>;

// x: [outer, size, inner] in memory order, y: [outer, from.size(), inner].
template <class Word>
void take_words(const Tensor& x, const AxisView& view, const Elements& from, Word fill, Tensor& y) {
  const auto* in = static_cast<const Word*>(x.raw());
  auto* out = static_cast<Word*>(y.mutable_raw());
  const auto rows = static_cast<std::int64_t>(from.size());
  const std::int64_t inner = view.inner;
#pragma omp parallel for schedule(static) if (y.numel() > parallel_elements)
  for (std::int64_t row = 0; row < view.outer * rows; ++row) {
    const std::int64_t element = from[static_cast<std::size_t>(row % rows)];
    if (element < 0)
      std::fill_n(out + row * inner, inner, fill);
    else
      std::copy_n(in + (row / rows * view.size + element) * inner, inner, out + row * inner);
  }
}

/// Takes bits, byte by byte of y. Bits after the last element are 0.
void take_bits(const Tensor& x, const AxisView& view, const Elements& from, Tensor& y) {
  const auto* in = static_cast<const std::uint8_t*>(x.raw());
  auto* out = static_cast<std::uint8_t*>(y.mutable_raw());
  const auto rows = static_cast<std::int64_t>(from.size());
  const std::int64_t count = y.numel();
#pragma omp parallel for schedule(static) if (count > parallel_elements)
  // One task per byte of y: tasks that write bits of one byte would race.
  for (std::int64_t byte = 0; byte < (count + 7) / 8; ++byte) {
    unsigned bits = 0;
    for (std::int64_t i = 8 * byte; i < std::min(8 * byte + 8, count); ++i) {
      const std::int64_t row = i / view.inner, element = from[static_cast<std::size_t>(row % rows)];
      const std::int64_t at = (row / rows * view.size + element) * view.inner + i % view.inner;
      if (element >= 0) bits |= (in[at / 8] >> (at % 8) & 1U) << (i % 8);
    }
    out[byte] = static_cast<std::uint8_t>(bits);
  }
}

// x: [outer, size, inner] in memory order, y: [outer, mix.rows(), inner].
template <class T>
void mix_rows(const Tensor& x, const AxisView& view, const detail::AxisMix& mix, Tensor& y) {
  const T* in = x.data<T>(x.layout());
  T* out = y.mutable_data<T>(y.layout());
  const std::int64_t rows = mix.rows(), inner = view.inner;
  const std::int64_t *begin = mix.begin.data(), *from = mix.from.data();
  const double* weight = mix.weight.data();
#pragma omp parallel for schedule(static) if (y.numel() > parallel_elements)
  for (std::int64_t row = 0; row < view.outer * rows; ++row) {
    const std::int64_t j = row % rows;
    const T* fibre = in + row / rows * view.size * inner;
    for (std::int64_t i = 0; i < inner; ++i) {
      // f64, in the order of the row's entries: part of the result.
      double sum = 0.0;
      for (std::int64_t k = begin[j]; k < begin[j + 1]; ++k)
        sum += weight[k] * static_cast<double>(fibre[from[k] * inner + i]);
      out[row * inner + i] = static_cast<T>(sum);
    }
  }
}

}  // namespace

void take(const Tensor& x, int axis, const Elements& from, double fill, Tensor& y) {
  if (y.numel() == 0) return;
  const AxisView view = memory_view(x.shape(), x.layout(), axis);
  if (bit_width(x.dtype()) == 1) return take_bits(x, view, from, y);
  detail::visit_fill_word(x.dtype(), fill, [&](auto word) { take_words(x, view, from, word, y); });
}

void mix(const Tensor& x, int axis, const detail::AxisMix& mix, Tensor& y) {
  if (y.numel() == 0) return;
  const AxisView view = memory_view(x.shape(), x.layout(), axis);
  detail::visit_float(x.dtype(), "mix", [&]<class T>(T) { mix_rows<T>(x, view, mix, y); });
}

}  // namespace fq::cpu
