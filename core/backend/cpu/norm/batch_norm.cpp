#include "fakequant/core/backend/cpu/norm/batch_norm_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/numerics/detail/formulas.h"

namespace fq::cpu {
namespace {

/// Calls f(x, T{}) with the elements of x and the type T of the computation.
template <class F>
auto visit_rows(const Tensor& x, F&& f) {
  if (x.dtype() == DType::i32) return f(x.data<std::int32_t>(x.layout()), float{});
  return detail::visit_float(x.dtype(), "batch_norm",
                             [&]<class T>(T) { return f(x.data<T>(x.layout()), T{}); });
}

/// Returns row `row` of the per-channel numbers, repeated to the width of a run.
template <class T>
std::vector<T> repeated_row(const Tensor& numbers, std::int64_t row, std::int64_t channels) {
  return cpu::repeated<T>(numbers.data<T>() + row * channels, channels);
}

// x: [rows, C], C innermost. The loops run over runs of `width` elements, a multiple of C.
void moment_sums(const double* x, std::int64_t count, std::int64_t width, const double* first, double* sums,
                 double* squares) {
  for (std::int64_t i = 0; i < count; ++i) {
    // Differences to the first row of the block are small, so the squares do not cancel in the variance.
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
    y[i] = scalar::normalized(x[i], mean[i % width], factor[i % width], shift[i % width]);
}
void normalize_backward(const double* dy, const double* x, std::int64_t count, std::int64_t width,
                        const double* mean, const double* factor, const double* slope, const double* shift,
                        double* dx) {
  for (std::int64_t i = 0; i < count; ++i)
    dx[i] = scalar::normalized_gradient(dy[i], x[i], mean[i % width], factor[i % width], slope[i % width],
                                        shift[i % width]);
}

/// Returns two sums per channel for each block. add(begin, end, sums, products) adds the sums of a block in
/// its runs.
template <class T, class F>
std::vector<T> block_sums(const RunBlocks& blocks, std::int64_t channels, F&& add) {
  std::vector<T> parts(static_cast<std::size_t>(2 * blocks.count * channels), T{0});
  parallel_blocks(blocks, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> runs(static_cast<std::size_t>(2 * blocks.width), T{0});
    T* products = runs.data() + blocks.width;
    add(begin, end, runs.data(), products);
    // A run repeats the channels, so several columns of a run belong to one channel.
    T* out = parts.data() + 2 * (begin / blocks.size) * channels;
    for (std::int64_t i = 0; i < blocks.width; ++i) {
      out[i % channels] += runs[static_cast<std::size_t>(i)];
      out[channels + i % channels] += products[i];
    }
  });
  return parts;
}

/// Merges the moments of blocks in order (Chan, Golub, LeVeque 1979).
template <class T>
void join(const T* x, const std::vector<T>& parts, const RunBlocks& blocks, std::int64_t channels,
          double* mean, double* variance) {
  std::fill_n(mean, channels, 0.0);
  std::fill_n(variance, channels, 0.0);
  for (std::int64_t b = 0; b < blocks.count; ++b) {
    const auto before = static_cast<double>(blocks.begin(b) / channels);
    const auto now = static_cast<double>(blocks.end(b) / channels);
    const double rows = now - before, share = rows / now;
    const T* part = parts.data() + 2 * b * channels;
    const T* first = x + blocks.begin(b);
    for (std::int64_t c = 0; c < channels; ++c) {
      // The block has the mean first + offset, and `squares` is the sum of squared differences to that mean.
      const double offset = static_cast<double>(part[c]) / rows;
      const double delta = static_cast<double>(first[c]) + offset - mean[c];
      const double squares = static_cast<double>(part[channels + c]) - offset * offset * rows;
      mean[c] += delta * share;
      // Rounding can make `squares` slightly negative.
      variance[c] += std::max(0.0, squares) + delta * delta * before * share;
    }
  }
  // Empty input: 0 / 1.
  const double rows = std::max(1.0, static_cast<double>(blocks.elements / channels));
  for (std::int64_t c = 0; c < channels; ++c) variance[c] /= rows;
}

/// Exact moments of int32 sums. They do not depend on the blocks.
void integer_moments(const std::int32_t* x, const RunBlocks& blocks, std::int64_t channels, double* mean,
                     double* variance) {
  std::vector<detail::IntegerSums> parts(static_cast<std::size_t>(blocks.count * channels));
  parallel_blocks(blocks, [&](std::int64_t begin, std::int64_t end) {
    std::vector<detail::IntegerSums> runs(static_cast<std::size_t>(blocks.width));
    integer_sums(x + begin, end - begin, blocks.width, runs.data());
    detail::IntegerSums* out = parts.data() + begin / blocks.size * channels;
    for (std::int64_t i = 0; i < blocks.width; ++i) out[i % channels].join(runs[static_cast<std::size_t>(i)]);
  });
  const std::int64_t rows = blocks.elements / channels;
  for (std::int64_t c = 0; c < channels; ++c) {
    detail::IntegerSums sums{};
    for (std::int64_t b = 0; b < blocks.count; ++b)
      sums.join(parts[static_cast<std::size_t>(b * channels + c)]);
    mean[c] = sums.mean(rows);
    variance[c] = sums.variance(rows);
  }
}

}  // namespace

void moments(const Tensor& x, Tensor& out) {
  const std::int64_t channels = out.dim(1);
  if (channels == 0) return;
  const RunBlocks blocks(x.numel(), channels);
  auto *mean = out.mutable_data<double>(), *variance = mean + channels;
  if (x.dtype() == DType::i32)
    return integer_moments(x.data<std::int32_t>(x.layout()), blocks, channels, mean, variance);
  detail::visit_float(x.dtype(), "batch_norm", [&]<class T>(T) {
    const T* values = x.data<T>(x.layout());
    const auto parts =
        block_sums<T>(blocks, channels, [&](std::int64_t begin, std::int64_t end, T* sums, T* squares) {
          const auto first = cpu::repeated<T>(values + begin, channels);
          moment_sums(values + begin, end - begin, blocks.width, first.data(), sums, squares);
        });
    join(values, parts, blocks, channels, mean, variance);
  });
}

void normalize(const Tensor& x, const Tensor& coefficients, Tensor& y) {
  if (x.numel() == 0) return;
  const std::int64_t channels = coefficients.dim(1);
  const RunBlocks blocks(x.numel(), channels);
  detail::visit_float(x.dtype(), "batch_norm", [&]<class T>(T) {
    const auto m = repeated_row<T>(coefficients, 0, channels), f = repeated_row<T>(coefficients, 1, channels),
               t = repeated_row<T>(coefficients, 2, channels);
    const T* in = x.data<T>(x.layout());
    T* out = y.mutable_data<T>(y.layout());
    parallel_blocks(blocks, [&](std::int64_t begin, std::int64_t end) {
      normalize(in + begin, end - begin, blocks.width, m.data(), f.data(), t.data(), out + begin);
    });
  });
}

void gradient_sums(const Tensor& dy, const Tensor& x, const Tensor& center, Tensor& out) {
  const std::int64_t channels = out.dim(1);
  auto* sums = out.mutable_data<double>();
  std::fill_n(sums, out.numel(), 0.0);
  if (x.numel() == 0) return;
  const RunBlocks blocks(x.numel(), channels);
  visit_rows(x, [&]<class X, class T>(const X* values, T) {
    const auto means = repeated_row<T>(center, 0, channels);
    const T* g = dy.data<T>(dy.layout());
    const auto parts =
        block_sums<T>(blocks, channels, [&](std::int64_t begin, std::int64_t end, T* sum, T* products) {
          gradient_sums(g + begin, values + begin, end - begin, blocks.width, means.data(), sum, products);
        });
    for (std::int64_t b = 0; b < blocks.count; ++b)
      for (std::int64_t i = 0; i < 2 * channels; ++i)
        // Blocks are fixed by the shape and added in order: the bits do not depend on threads.
        sums[i] += static_cast<double>(parts[static_cast<std::size_t>(2 * b * channels + i)]);
  });
}

void normalize_backward(const Tensor& dy, const Tensor& x, const Tensor& center, const Tensor& coefficients,
                        Tensor& dx) {
  if (x.numel() == 0) return;
  const std::int64_t channels = coefficients.dim(1);
  const RunBlocks blocks(x.numel(), channels);
  visit_rows(x, [&]<class X, class T>(const X* values, T) {
    const auto m = repeated_row<T>(center, 0, channels), f = repeated_row<T>(coefficients, 0, channels),
               p = repeated_row<T>(coefficients, 1, channels), t = repeated_row<T>(coefficients, 2, channels);
    T* out = dx.mutable_data<T>(dx.layout());
    const T* g = dy.data<T>(dy.layout());
    parallel_blocks(blocks, [&](std::int64_t begin, std::int64_t end) {
      normalize_backward(g + begin, values + begin, end - begin, blocks.width, m.data(), f.data(), p.data(),
                         t.data(), out + begin);
    });
  });
}

void forward_numbers(const detail::BatchNormForward& numbers, std::int64_t channels, Device) {
  for (std::int64_t c = 0; c < channels; ++c) numbers(c);
}
void backward_numbers(const detail::BatchNormBackward& numbers, std::int64_t channels, Device) {
  for (std::int64_t c = 0; c < channels; ++c) numbers(c);
}

}  // namespace fq::cpu
