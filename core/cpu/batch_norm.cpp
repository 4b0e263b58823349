#include "fakequant/core/cpu/batch_norm.h"

#include <algorithm>

#include "fakequant/core/convert.h"

namespace fq::cpu {
namespace {

/// Rows in blocks whose size depends on the number of channels only.
struct Blocks {
  std::int64_t rows, channels, size, count;
  Blocks(std::int64_t all, std::int64_t width)
      : rows(all),
        channels(width),
        size(std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(width, 1))),
        count((all + size - 1) / size) {}
  [[nodiscard]] std::int64_t begin(std::int64_t block) const { return block * size; }
  [[nodiscard]] std::int64_t end(std::int64_t block) const { return std::min(rows, (block + 1) * size); }
};

template <class T>
std::vector<T> narrow(const PerChannel& values) {
  return {values.begin(), values.end()};
}

/// Sums of x - first and of its square, `first` the block's first row: one pass, and no cancellation to speak
/// of.
template <class T>
void shifted_sums(const T* x, std::int64_t rows, std::int64_t channels, T* sums, T* squares) {
  for (std::int64_t r = 0; r < rows; ++r)
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const T shifted = x[r * channels + c] - x[c];
      sums[c] += shifted;
      squares[c] += shifted * shifted;
    }
}

/// Joins the moments of blocks in order (Chan, Golub, LeVeque 1979).
template <class T>
Moments joined(const T* x, const std::vector<T>& parts, const Blocks& blocks) {
  const auto channels = static_cast<std::size_t>(blocks.channels);
  Moments out{PerChannel(channels, 0.0), PerChannel(channels, 0.0)};
  for (std::int64_t b = 0; b < blocks.count; ++b) {
    const auto before = static_cast<double>(blocks.begin(b)), now = static_cast<double>(blocks.end(b));
    const double rows = now - before, share = rows / now;
    const T* part = parts.data() + 2 * b * blocks.channels;
    const T* first = x + blocks.begin(b) * blocks.channels;
    for (std::size_t c = 0; c < channels; ++c) {
      const double offset = static_cast<double>(part[c]) / rows;
      const double delta = static_cast<double>(first[c]) + offset - out.mean[c];
      const double squares = static_cast<double>(part[channels + c]) - offset * offset * rows;
      out.mean[c] += delta * share;
      out.variance[c] += std::max(0.0, squares) + delta * delta * before * share;
    }
  }
  for (auto& v : out.variance) v /= std::max(1.0, static_cast<double>(blocks.rows));
  return out;
}

}  // namespace

Moments moments(const Tensor& x, std::int64_t rows, std::int64_t channels) {
  const Blocks blocks(rows, channels);
  return detail::visit_float(x.dtype(), "batch_norm", [&]<class T>(T) {
    std::vector<T> parts(static_cast<std::size_t>(2 * blocks.count * channels), T{0});
    const T* values = x.data<T>(x.layout());
#pragma omp parallel for schedule(static) if (blocks.count > 1)
    for (std::int64_t b = 0; b < blocks.count; ++b) {
      T* part = parts.data() + 2 * b * channels;
      shifted_sums(values + blocks.begin(b) * channels, blocks.end(b) - blocks.begin(b), channels, part,
                   part + channels);
    }
    return joined(values, parts, blocks);
  });
}

void normalize(const Tensor& x, const PerChannel& mean, const PerChannel& factor, const PerChannel& shift,
               Tensor& y) {
  const auto channels = static_cast<std::int64_t>(mean.size());
  detail::visit_float(x.dtype(), "batch_norm", [&]<class T>(T) {
    const auto means = narrow<T>(mean), factors = narrow<T>(factor), shifts = narrow<T>(shift);
    const T *m = means.data(), *a = factors.data(), *b = shifts.data();
    const T* in = x.data<T>(x.layout());
    T* out = y.mutable_data<T>(y.layout());
    const std::int64_t rows = channels == 0 ? 0 : x.numel() / channels;
#pragma omp parallel for schedule(static) if (x.numel() > 32768)
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* p = in + r * channels;
      T* q = out + r * channels;
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) q[c] = (p[c] - m[c]) * a[c] + b[c];
    }
  });
}

GradientSums gradient_sums(const Tensor& dy, const Tensor& x, const PerChannel& mean) {
  const auto channels = static_cast<std::int64_t>(mean.size());
  const Blocks blocks(channels == 0 ? 0 : x.numel() / channels, channels);
  GradientSums out{PerChannel(mean.size(), 0.0), PerChannel(mean.size(), 0.0)};
  detail::visit_float(x.dtype(), "batch_norm", [&]<class T>(T) {
    const auto means = narrow<T>(mean);
    const T *m = means.data(), *g = dy.data<T>(dy.layout()), *v = x.data<T>(x.layout());
    std::vector<T> parts(static_cast<std::size_t>(2 * blocks.count * channels), T{0});
#pragma omp parallel for schedule(static) if (blocks.count > 1)
    for (std::int64_t b = 0; b < blocks.count; ++b) {
      T* sums = parts.data() + 2 * b * channels;
      T* products = sums + channels;
      for (std::int64_t r = blocks.begin(b); r < blocks.end(b); ++r)
#pragma omp simd
        for (std::int64_t c = 0; c < channels; ++c) {
          sums[c] += g[r * channels + c];
          products[c] += g[r * channels + c] * (v[r * channels + c] - m[c]);
        }
    }
    for (std::int64_t b = 0; b < blocks.count; ++b)
      for (std::size_t c = 0; c < mean.size(); ++c) {
        const T* part = parts.data() + 2 * b * channels + c;
        out.dy[c] += static_cast<double>(part[0]);
        out.product[c] += static_cast<double>(part[channels]);
      }
  });
  return out;
}

void normalize_backward(const Tensor& dy, const Tensor& x, const PerChannel& mean, const PerChannel& factor,
                        const PerChannel& slope, const PerChannel& shift, Tensor& dx) {
  const auto channels = static_cast<std::int64_t>(mean.size());
  detail::visit_float(x.dtype(), "batch_norm", [&]<class T>(T) {
    const auto means = narrow<T>(mean), factors = narrow<T>(factor), slopes = narrow<T>(slope);
    const auto shifts = narrow<T>(shift);
    const T *m = means.data(), *a = factors.data(), *s = slopes.data(), *b = shifts.data();
    const T *g = dy.data<T>(dy.layout()), *v = x.data<T>(x.layout());
    T* out = dx.mutable_data<T>(dx.layout());
    const std::int64_t rows = channels == 0 ? 0 : x.numel() / channels;
#pragma omp parallel for schedule(static) if (x.numel() > 32768)
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = r * channels;
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c)
        out[at + c] = g[at + c] * a[c] + (v[at + c] - m[c]) * s[c] + b[c];
    }
  });
}

}  // namespace fq::cpu
