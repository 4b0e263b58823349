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

/// The windows that contain a pixel: rows [top, bottom), columns [left, right) of the output.
struct Windows {
  std::int64_t top, bottom, left, right;

  Windows(const PoolSizes& s, std::int64_t h, std::int64_t w)
      : top(first(h + s.ph, s.kh, s.sh)),
        bottom(std::min((h + s.ph) / s.sh + 1, s.oh)),
        left(first(w + s.pw, s.kw, s.sw)),
        right(std::min((w + s.pw) / s.sw + 1, s.ow)) {}
  /// ceil((at - kernel + 1) / stride), at least 0
  static std::int64_t first(std::int64_t at, std::int64_t kernel, std::int64_t stride) {
    return at < kernel ? 0 : (at - kernel) / stride + 1;
  }
};

/// f(dx of a pixel, output pixel with its image, place of the pixel in that window) for every window of every
/// pixel; each dx is set to 0 before. Input rows in parallel.
template <class T, class F>
void each_input(const PoolSizes& s, T* dx, F&& f) {
#pragma omp parallel for schedule(static) if (s.n * s.h * s.w * s.c > 32768)
  for (std::int64_t row = 0; row < s.n * s.h; ++row)
    for (std::int64_t w = 0; w < s.w; ++w) {
      const std::int64_t n = row / s.h, h = row % s.h;
      T* d = dx + (row * s.w + w) * s.c;
      std::fill_n(d, s.c, T{0});
      const Windows windows(s, h, w);
      for (std::int64_t i = windows.top; i < windows.bottom; ++i)
        for (std::int64_t j = windows.left; j < windows.right; ++j)
          f(d, (n * s.oh + i) * s.ow + j, (h + s.ph - i * s.sh) * s.kw + (w + s.pw - j * s.sw));
    }
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

/// d += g where arg is `place`
template <class T>
void add_where(const T* g, const std::int32_t* arg, std::int32_t place, std::int64_t channels, T* d) {
#pragma omp simd
  for (std::int64_t c = 0; c < channels; ++c) {
    const T gradient = g[c], sum = d[c] + gradient;
    d[c] = arg[c] == place ? sum : d[c];
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
    each_input(s, dx.mutable_data<T>(Layout::channels_last),
               [&](T* d, std::int64_t pixel, std::int64_t place) {
                 add_where(in + pixel * s.c, arg + pixel * s.c, static_cast<std::int32_t>(place), s.c, d);
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
    each_input(s, dx.mutable_data<T>(Layout::channels_last), [&](T* d, std::int64_t pixel, std::int64_t) {
      const Window window(s, pixel / s.ow % s.oh, pixel % s.ow);
      const T share = T{1} / static_cast<T>(include_padding ? s.window() : window.pixels());
      const T* g = in + pixel * s.c;
#pragma omp simd
      for (std::int64_t c = 0; c < s.c; ++c) d[c] += g[c] * share;
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
