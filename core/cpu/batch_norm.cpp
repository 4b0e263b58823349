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

/// Channels side by side often enough that inner loops are long: a run of `width` elements starts at channel
/// 0.
std::int64_t width_of(std::int64_t channels) {
  return channels * std::max<std::int64_t>(1, 128 / std::max<std::int64_t>(channels, 1));
}

/// The values of the channels, repeated to the width.
template <class T, class From>
std::vector<T> repeated(const From* values, std::int64_t channels) {
  std::vector<T> out(static_cast<std::size_t>(width_of(channels)));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<T>(values[i % static_cast<std::size_t>(channels)]);
  return out;
}
template <class T>
std::vector<T> repeated(const PerChannel& values) {
  return repeated<T>(values.data(), static_cast<std::int64_t>(values.size()));
}

/// f(begin, length) for runs of at most `width` elements of [begin, end).
template <class F>
void each_run(std::int64_t begin, std::int64_t end, std::int64_t width, F&& f) {
  for (std::int64_t at = begin; at < end; at += width) f(at, std::min(width, end - at));
}

/// Two sums a channel of the terms of one block: `add(at, length, sums, products)` adds those of a run.
template <class T, class F>
void block_sums(const Blocks& blocks, std::int64_t block, T* out, F&& add) {
  const std::int64_t channels = blocks.channels, width = width_of(channels);
  std::vector<T> sums(static_cast<std::size_t>(2 * width), T{0});
  T* products = sums.data() + width;
  each_run(blocks.begin(block) * channels, blocks.end(block) * channels, width,
           [&](std::int64_t at, std::int64_t length) { add(at, length, sums.data(), products); });
  for (std::int64_t i = 0; i < width; ++i) {
    out[i % channels] += sums[static_cast<std::size_t>(i)];
    out[channels + i % channels] += products[i];
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
      const auto first = repeated<T>(values + blocks.begin(b) * channels, channels);
      block_sums<T>(
          blocks, b, parts.data() + 2 * b * channels,
          [v = values, f = first.data()](std::int64_t at, std::int64_t length, T* sums, T* squares) {
#pragma omp simd
            for (std::int64_t i = 0; i < length; ++i) {
              const T shifted = v[at + i] - f[i];
              sums[i] += shifted;
              squares[i] += shifted * shifted;
            }
          });
    }
    return joined(values, parts, blocks);
  });
}

void normalize(const Tensor& x, const PerChannel& mean, const PerChannel& factor, const PerChannel& shift,
               Tensor& y) {
  if (x.numel() == 0) return;
  const auto channels = static_cast<std::int64_t>(mean.size());
  const Blocks blocks(x.numel() / channels, channels);
  detail::visit_float(x.dtype(), "batch_norm", [&]<class T>(T) {
    const auto means = repeated<T>(mean), factors = repeated<T>(factor), shifts = repeated<T>(shift);
    const T *m = means.data(), *a = factors.data(), *s = shifts.data();
    const T* in = x.data<T>(x.layout());
    T* out = y.mutable_data<T>(y.layout());
#pragma omp parallel for schedule(static) if (blocks.count > 1)
    for (std::int64_t b = 0; b < blocks.count; ++b)
      each_run(blocks.begin(b) * channels, blocks.end(b) * channels, width_of(channels),
               [=](std::int64_t at, std::int64_t length) {
#pragma omp simd
                 for (std::int64_t i = 0; i < length; ++i) out[at + i] = (in[at + i] - m[i]) * a[i] + s[i];
               });
  });
}

GradientSums gradient_sums(const Tensor& dy, const Tensor& x, const PerChannel& mean) {
  const auto channels = static_cast<std::int64_t>(mean.size());
  const Blocks blocks(channels == 0 ? 0 : x.numel() / channels, channels);
  GradientSums out{PerChannel(mean.size(), 0.0), PerChannel(mean.size(), 0.0)};
  detail::visit_float(x.dtype(), "batch_norm", [&]<class T>(T) {
    const auto means = repeated<T>(mean);
    std::vector<T> parts(static_cast<std::size_t>(2 * blocks.count * channels), T{0});
#pragma omp parallel for schedule(static) if (blocks.count > 1)
    for (std::int64_t b = 0; b < blocks.count; ++b)
      block_sums<T>(blocks, b, parts.data() + 2 * b * channels,
                    [m = means.data(), g = dy.data<T>(dy.layout()), v = x.data<T>(x.layout())](
                        std::int64_t at, std::int64_t length, T* sums, T* products) {
#pragma omp simd
                      for (std::int64_t i = 0; i < length; ++i) {
                        sums[i] += g[at + i];
                        products[i] += g[at + i] * (v[at + i] - m[i]);
                      }
                    });
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
  if (x.numel() == 0) return;
  const auto channels = static_cast<std::int64_t>(mean.size());
  const Blocks blocks(x.numel() / channels, channels);
  detail::visit_float(x.dtype(), "batch_norm", [&]<class T>(T) {
    const auto means = repeated<T>(mean), factors = repeated<T>(factor), slopes = repeated<T>(slope);
    const auto shifts = repeated<T>(shift);
    const T *m = means.data(), *a = factors.data(), *s = slopes.data(), *o = shifts.data();
    const T *g = dy.data<T>(dy.layout()), *v = x.data<T>(x.layout());
    T* out = dx.mutable_data<T>(dx.layout());
#pragma omp parallel for schedule(static) if (blocks.count > 1)
    for (std::int64_t b = 0; b < blocks.count; ++b)
      each_run(blocks.begin(b) * channels, blocks.end(b) * channels, width_of(channels),
               [=](std::int64_t at, std::int64_t length) {
#pragma omp simd
                 for (std::int64_t i = 0; i < length; ++i)
                   out[at + i] = g[at + i] * a[i] + (v[at + i] - m[i]) * s[i] + o[i];
               });
  });
}

}  // namespace fq::cpu
