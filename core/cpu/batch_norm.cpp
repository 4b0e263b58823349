#include "fakequant/core/cpu/batch_norm.h"

#include "fakequant/core/convert.h"
#include "fakequant/core/cpu/batch_norm_kernels.h"
#include "fakequant/core/cpu/channel_runs.h"
#include "fakequant/core/formulas.h"

namespace fq::cpu {
namespace {

/// f(x, T{}) with the elements of x and the type that they are computed in.
template <class F>
auto visit_rows(const Tensor& x, F&& f) {
  if (x.dtype() == DType::i32) return f(x.data<std::int32_t>(x.layout()), float{});
  return detail::visit_float(x.dtype(), "batch_norm",
                             [&]<class T>(T) { return f(x.data<T>(x.layout()), T{}); });
}

template <class T>
std::vector<T> repeated(const PerChannel& values) {
  return cpu::repeated<T>(values.data(), static_cast<std::int64_t>(values.size()));
}

void moment_sums(const double* x, std::int64_t count, std::int64_t width, const double* first, double* sums,
                 double* squares) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double shifted = x[i] - first[i % width];
    sums[i % width] += shifted;
    squares[i % width] += shifted * shifted;
  }
}
void gradient_sums(const double* dy, const double* x, std::int64_t count, std::int64_t width,
                   const double* mean, double* sums, double* products) {
  for (std::int64_t i = 0; i < count; ++i) {
    sums[i % width] += dy[i];
    products[i % width] += dy[i] * (x[i] - mean[i % width]);
  }
}
void normalize(const double* x, std::int64_t count, std::int64_t width, const double* mean,
               const double* factor, const double* shift, double* y) {
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = (x[i] - mean[i % width]) * factor[i % width] + shift[i % width];
}
void normalize_backward(const double* dy, const double* x, std::int64_t count, std::int64_t width,
                        const double* mean, const double* factor, const double* slope, const double* shift,
                        double* dx) {
  for (std::int64_t i = 0; i < count; ++i)
    dx[i] = dy[i] * factor[i % width] + (x[i] - mean[i % width]) * slope[i % width] + shift[i % width];
}

/// Two sums a channel for each block; add(begin, end, sums, products) adds those of a block in its runs.
template <class T, class F>
std::vector<T> block_sums(const RunBlocks& blocks, std::int64_t channels, F&& add) {
  std::vector<T> parts(static_cast<std::size_t>(2 * blocks.count * channels), T{0});
  for_blocks(blocks, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> runs(static_cast<std::size_t>(2 * blocks.width), T{0});
    T* products = runs.data() + blocks.width;
    add(begin, end, runs.data(), products);
    T* out = parts.data() + 2 * (begin / blocks.size) * channels;
    for (std::int64_t i = 0; i < blocks.width; ++i) {
      out[i % channels] += runs[static_cast<std::size_t>(i)];
      out[channels + i % channels] += products[i];
    }
  });
  return parts;
}

/// Joins the moments of blocks in order (Chan, Golub, LeVeque 1979).
template <class T, class X>
Moments joined(const X* x, const std::vector<T>& parts, const RunBlocks& blocks, std::int64_t width) {
  const auto channels = static_cast<std::size_t>(width);
  Moments out{PerChannel(channels, 0.0), PerChannel(channels, 0.0)};
  for (std::int64_t b = 0; b < blocks.count; ++b) {
    const auto before = static_cast<double>(blocks.begin(b) / width);
    const auto now = static_cast<double>(blocks.end(b) / width);
    const double rows = now - before, share = rows / now;
    const T* part = parts.data() + 2 * b * width;
    const X* first = x + blocks.begin(b);
    for (std::size_t c = 0; c < channels; ++c) {
      const double offset = static_cast<double>(part[c]) / rows;
      const double delta = static_cast<double>(static_cast<T>(first[c])) + offset - out.mean[c];
      const double squares = static_cast<double>(part[channels + c]) - offset * offset * rows;
      out.mean[c] += delta * share;
      out.variance[c] += std::max(0.0, squares) + delta * delta * before * share;
    }
  }
  for (auto& v : out.variance) v /= std::max(1.0, static_cast<double>(blocks.elements / width));
  return out;
}

}  // namespace

Moments moments(const Tensor& x, std::int64_t channels) {
  const RunBlocks blocks(x.numel(), channels);
  return visit_rows(x, [&]<class X, class T>(const X* values, T) {
    const auto parts =
        block_sums<T>(blocks, channels, [&](std::int64_t begin, std::int64_t end, T* sums, T* squares) {
          const auto first = cpu::repeated<T>(values + begin, channels);
          moment_sums(values + begin, end - begin, blocks.width, first.data(), sums, squares);
        });
    return joined(values, parts, blocks, channels);
  });
}

void normalize(const Tensor& x, const PerChannel& mean, const PerChannel& factor, const PerChannel& shift,
               Tensor& y) {
  if (x.numel() == 0) return;
  const RunBlocks blocks(x.numel(), static_cast<std::int64_t>(mean.size()));
  detail::visit_float(x.dtype(), "batch_norm", [&]<class T>(T) {
    const auto m = repeated<T>(mean), f = repeated<T>(factor), t = repeated<T>(shift);
    const T* in = x.data<T>(x.layout());
    T* out = y.mutable_data<T>(y.layout());
    for_blocks(blocks, [&](std::int64_t begin, std::int64_t end) {
      normalize(in + begin, end - begin, blocks.width, m.data(), f.data(), t.data(), out + begin);
    });
  });
}

GradientSums gradient_sums(const Tensor& dy, const Tensor& x, const PerChannel& mean) {
  const auto channels = static_cast<std::int64_t>(mean.size());
  const RunBlocks blocks(x.numel(), channels);
  GradientSums out{PerChannel(mean.size(), 0.0), PerChannel(mean.size(), 0.0)};
  visit_rows(x, [&]<class X, class T>(const X* values, T) {
    const auto means = repeated<T>(mean);
    const T* g = dy.data<T>(dy.layout());
    const auto parts =
        block_sums<T>(blocks, channels, [&](std::int64_t begin, std::int64_t end, T* sums, T* products) {
          gradient_sums(g + begin, values + begin, end - begin, blocks.width, means.data(), sums, products);
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
  const RunBlocks blocks(x.numel(), static_cast<std::int64_t>(mean.size()));
  visit_rows(x, [&]<class X, class T>(const X* values, T) {
    const auto m = repeated<T>(mean), f = repeated<T>(factor), p = repeated<T>(slope), t = repeated<T>(shift);
    T* out = dx.mutable_data<T>(dx.layout());
    const T* g = dy.data<T>(dy.layout());
    for_blocks(blocks, [&](std::int64_t begin, std::int64_t end) {
      normalize_backward(g + begin, values + begin, end - begin, blocks.width, m.data(), f.data(), p.data(),
                         t.data(), out + begin);
    });
  });
}

}  // namespace fq::cpu
