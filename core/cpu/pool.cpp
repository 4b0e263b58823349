#include "fakequant/core/cpu/pool.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "fakequant/core/convert.h"

namespace fq::cpu {
namespace {

/// The part of window (i, j) that lies in the image.
struct Window {
  std::int64_t top, bottom, left, right, first_row, first_column;

  Window(const PoolSizes& s, std::int64_t i, std::int64_t j)
      : first_row(i * s.sh - s.ph), first_column(j * s.sw - s.pw) {
    top = std::max<std::int64_t>(first_row, 0);
    bottom = std::min(first_row + s.kh, s.h);
    left = std::max<std::int64_t>(first_column, 0);
    right = std::min(first_column + s.kw, s.w);
  }
  [[nodiscard]] std::int64_t pixels() const { return (bottom - top) * (right - left); }

  /// f(place in the window, pixel in the image), in (h, w) order.
  template <class F>
  void each(const PoolSizes& s, F&& f) const {
    for (std::int64_t h = top; h < bottom; ++h)
      for (std::int64_t w = left; w < right; ++w) f((h - first_row) * s.kw + (w - first_column), h * s.w + w);
  }
};

/// f(n, i, j) for every output pixel, rows in parallel.
template <class F>
void each_output(const PoolSizes& s, F&& f) {
#pragma omp parallel for schedule(static) if (s.n * s.oh * s.ow * s.c * s.window() > 32768)
  for (std::int64_t row = 0; row < s.n * s.oh; ++row)
    for (std::int64_t j = 0; j < s.ow; ++j) f(row / s.oh, row % s.oh, j);
}

/// f(n) for every image, in parallel.
template <class F>
void each_image(const PoolSizes& s, F&& f) {
#pragma omp parallel for schedule(static) if (s.n * s.h * s.w * s.c > 32768)
  for (std::int64_t n = 0; n < s.n; ++n) f(n);
}

template <class T>
void larger(const T* x, std::int64_t channels, T* y) {
#pragma omp simd
  for (std::int64_t c = 0; c < channels; ++c) y[c] = (x[c] > y[c]) | (x[c] != x[c]) ? x[c] : y[c];
}

template <class T>
void larger(const T* x, std::int64_t channels, std::int32_t place, T* y, std::int32_t* arg) {
#pragma omp simd
  for (std::int64_t c = 0; c < channels; ++c) {
    const bool wins = (x[c] > y[c]) | (x[c] != x[c]);
    y[c] = wins ? x[c] : y[c];
    arg[c] = wins ? place : arg[c];
  }
}

template <class T>
void max_window(const T* image, const PoolSizes& s, const Window& window, T* y, std::int32_t* arg) {
  bool first = true;
  window.each(s, [&](std::int64_t place, std::int64_t pixel) {
    const T* x = image + pixel * s.c;
    if (first) std::copy_n(x, s.c, y);
    if (first && arg != nullptr) std::fill_n(arg, s.c, static_cast<std::int32_t>(place));
    if (!first && arg != nullptr) larger(x, s.c, static_cast<std::int32_t>(place), y, arg);
    if (!first && arg == nullptr) larger(x, s.c, y);
    first = false;
  });
}

}  // namespace

void max_pool(const Tensor& x, const PoolSizes& s, Tensor& y, Tensor* argmax) {
  auto* arg = argmax != nullptr ? argmax->mutable_data<std::int32_t>(Layout::channels_last) : nullptr;
  detail::visit_dtype(x.dtype(), "max_pool2d", [&]<class T>(T) {
    if constexpr (std::is_arithmetic_v<T>) {
      const T* in = x.data<T>(Layout::channels_last);
      T* out = y.mutable_data<T>(Layout::channels_last);
      each_output(s, [&](std::int64_t n, std::int64_t i, std::int64_t j) {
        const std::int64_t at = ((n * s.oh + i) * s.ow + j) * s.c;
        max_window(in + n * s.h * s.w * s.c, s, Window(s, i, j), out + at,
                   arg != nullptr ? arg + at : nullptr);
      });
    }
  });
}

void max_pool_backward(const Tensor& dy, const Tensor& argmax, const PoolSizes& s, Tensor& dx) {
  const auto* arg = argmax.data<std::int32_t>(Layout::channels_last);
  detail::visit_float(dy.dtype(), "max_pool2d", [&]<class T>(T) {
    const T* in = dy.data<T>(Layout::channels_last);
    T* out = dx.mutable_data<T>(Layout::channels_last);
    each_image(s, [&](std::int64_t n) {
      T* image = out + n * s.h * s.w * s.c;
      std::fill_n(image, s.h * s.w * s.c, T{0});
      for (std::int64_t p = 0; p < s.oh * s.ow; ++p) {
        const T* g = in + (n * s.oh * s.ow + p) * s.c;
        const std::int32_t* winner = arg + (n * s.oh * s.ow + p) * s.c;
        Window(s, p / s.ow, p % s.ow).each(s, [&](std::int64_t place, std::int64_t pixel) {
          T* d = image + pixel * s.c;
          const auto here = static_cast<std::int32_t>(place);
#pragma omp simd
          for (std::int64_t c = 0; c < s.c; ++c) d[c] += winner[c] == here ? g[c] : T{0};
        });
      }
    });
  });
}

void avg_pool(const Tensor& x, const PoolSizes& s, bool include_padding, Tensor& y) {
  detail::visit_float(x.dtype(), "avg_pool2d", [&]<class T>(T) {
    const T* in = x.data<T>(Layout::channels_last);
    T* out = y.mutable_data<T>(Layout::channels_last);
    each_output(s, [&](std::int64_t n, std::int64_t i, std::int64_t j) {
      const Window window(s, i, j);
      const T* image = in + n * s.h * s.w * s.c;
      T* t = out + ((n * s.oh + i) * s.ow + j) * s.c;
      std::fill_n(t, s.c, T{0});
      window.each(s, [&](std::int64_t, std::int64_t pixel) {
        const T* p = image + pixel * s.c;
#pragma omp simd
        for (std::int64_t c = 0; c < s.c; ++c) t[c] += p[c];
      });
      const T count = static_cast<T>(include_padding ? s.window() : window.pixels());
#pragma omp simd
      for (std::int64_t c = 0; c < s.c; ++c) t[c] /= count;
    });
  });
}

void avg_pool_backward(const Tensor& dy, const PoolSizes& s, bool include_padding, Tensor& dx) {
  detail::visit_float(dy.dtype(), "avg_pool2d", [&]<class T>(T) {
    const T* in = dy.data<T>(Layout::channels_last);
    T* out = dx.mutable_data<T>(Layout::channels_last);
    each_image(s, [&](std::int64_t n) {
      T* image = out + n * s.h * s.w * s.c;
      std::fill_n(image, s.h * s.w * s.c, T{0});
      for (std::int64_t p = 0; p < s.oh * s.ow; ++p) {
        const T* g = in + (n * s.oh * s.ow + p) * s.c;
        const Window window(s, p / s.ow, p % s.ow);
        const T share = T{1} / static_cast<T>(include_padding ? s.window() : window.pixels());
        window.each(s, [&](std::int64_t, std::int64_t pixel) {
          T* d = image + pixel * s.c;
#pragma omp simd
          for (std::int64_t c = 0; c < s.c; ++c) d[c] += g[c] * share;
        });
      }
    });
  });
}

void sum_pixels(const Tensor& codes, Tensor& sums) {
  const std::int64_t channels = codes.dim(1), pixels = codes.dim(2) * codes.dim(3);
  auto* out = sums.mutable_data<std::int32_t>(Layout::channels_last);
  detail::visit_dtype(codes.dtype(), "global_avg_pool2d", [&]<class T>(T) {
    if constexpr (std::is_integral_v<T> && sizeof(T) <= 4) {
      const T* in = codes.data<T>(Layout::channels_last);
#pragma omp parallel for schedule(static) if (codes.numel() > 32768)
      for (std::int64_t n = 0; n < codes.dim(0); ++n) {
        std::int32_t* total = out + n * channels;
        std::fill_n(total, channels, 0);
        for (std::int64_t p = 0; p < pixels; ++p) {
          const T* x = in + (n * pixels + p) * channels;
#pragma omp simd
          for (std::int64_t c = 0; c < channels; ++c) total[c] += static_cast<std::int32_t>(x[c]);
        }
      }
    }
  });
}

}  // namespace fq::cpu
