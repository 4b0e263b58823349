#include <algorithm>
#include <vector>

#include "fakequant/core/backend/cpu/codes/gradient_kernels.h"
#include "fakequant/core/backend/cpu/engine/engine.h"
#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/backend/cpu/engine/loops.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"
#include "fakequant/core/tape.h"

namespace fq::cpu {
namespace {

using detail::Codes, detail::Factor;

constexpr auto kChannelsLast = Layout::channels_last;

// oneDNN has no f64 products. These loops serve gradient checks and other computation in f64.
template <class T>
void multiply_loops(const detail::Factor& a, const detail::Factor& b, T* out, std::int64_t batch) {
  const std::int64_t m = a.rows, n = b.columns, k = a.columns;
  for (std::int64_t i = 0; i < batch; ++i)
    reference_gemm<T>(m, n, k, a.tensor.data<T>() + i * m * k, a.transposed, b.tensor.data<T>() + i * k * n,
                      b.transposed, out + i * m * n);
}

}  // namespace

void multiply(const Factor& a, const Factor& b, Tensor& out, std::int64_t batch, Sharing sharing) {
  if (out.dtype() == DType::f64) return multiply_loops(a, b, out.mutable_data<double>(), batch);
  gemm({a.tensor.raw(), a.tensor.dtype(), a.rows, a.columns, a.transposed},
       {b.tensor.raw(), b.tensor.dtype(), b.rows, b.columns, b.transposed}, out.mutable_data<float>(), batch,
       sharing);
}

void conv_forward(const ConvShape& shape, const Tensor& x, const Tensor& w, Tensor& y, Sharing sharing) {
  if (y.dtype() == DType::f64)
    return reference_conv_forward<double>(shape, x.data<double>(kChannelsLast), w.data<double>(),
                                          y.mutable_data<double>(kChannelsLast));
  conv_forward(shape, x.raw(), x.dtype(), w.raw(), w.dtype(), y.mutable_data<float>(kChannelsLast), sharing);
}

void conv_backward_data(const ConvShape& shape, const Tensor& dy, const Tensor& w, Tensor& dx,
                        Sharing sharing) {
  if (dx.dtype() != DType::f64)
    return conv_backward_data(shape, dy.raw(), w.raw(), dy.dtype(), dx.mutable_data<float>(kChannelsLast),
                              sharing);
  std::fill_n(dx.mutable_data<double>(kChannelsLast), dx.numel(), 0.0);
  reference_conv_backward_data(shape, dy.data<double>(kChannelsLast), w.data<double>(),
                               dx.mutable_data<double>(kChannelsLast));
}

void conv_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& dy, Tensor& dw) {
  if (dw.dtype() != DType::f64)
    return conv_backward_weights(shape, x.raw(), dy.raw(), dy.dtype(), dw.mutable_data<float>());
  std::fill_n(dw.mutable_data<double>(), dw.numel(), 0.0);
  reference_conv_backward_weights(shape, x.data<double>(kChannelsLast), dy.data<double>(kChannelsLast),
                                  dw.mutable_data<double>());
}

// b: [C]; y: [.., C] in memory order.
void add_bias(const Tensor& b, Tensor& y) {
  detail::visit_float(y.dtype(), "bias", [&]<class T>(T) {
    const std::int64_t channels = b.numel(), rows = y.numel() / channels;
    const T* from = b.data<T>();
    T* to = y.mutable_data<T>(y.layout());
#pragma omp parallel for schedule(static) if (rows * channels > 32768)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < channels; ++c) to[r * channels + c] += from[c];
  });
}

void bias_gradient(const Tensor& dy, Tensor& db) {
  const std::int64_t channels = db.numel();
  detail::visit_float(dy.dtype(), "bias", [&]<class T>(T) {
    const T* from = dy.data<T>(dy.layout());
    sum_columns(dy.numel() / channels, channels, db.mutable_data<T>(), [&](std::int64_t r, T* sum) {
      for (std::int64_t c = 0; c < channels; ++c) sum[c] += from[r * channels + c];
    });
  });
}

void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                Tensor& sums) {
  exact_gemm(m, n, k, x, w, static_cast<std::int32_t*>(sums.mutable_raw()));
}

void exact_batch(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x,
                 const Codes& w, Tensor& sums) {
  exact_batch(batch, m, n, k, x, w, static_cast<std::int32_t*>(sums.mutable_raw()));
}

void exact_conv(const ConvShape& shape, bool transposed, const Codes& x, const Codes& w, Tensor& sums) {
  auto* out = static_cast<std::int32_t*>(sums.mutable_raw());
  transposed ? exact_conv_transpose(shape, x, w, out) : exact_conv(shape, x, w, out);
}

// Backward multiplies codes, which bf16 represents exactly. Only the output gradient is rounded.
DType code_factor_dtype() {
  const bool bf16 = best_exact_type() != ExactType::f32 && exact_type_works(ExactType::bf16);
  return bf16 ? DType::bf16 : DType::f32;
}

namespace {

/// Returns scales[c % number of scales] for every channel c.
std::vector<float> each_channel(const Tensor& scales, std::int64_t channels) {
  const auto* scale = scales.data<float>();
  std::vector<float> out(static_cast<std::size_t>(channels), channels == 0 ? 0.0f : scale[0]);
  if (scales.numel() == 1) return out;
  for (std::int64_t c = 0; c < channels; ++c) out[static_cast<std::size_t>(c)] = scale[c % scales.numel()];
  return out;
}

/// Computes x[.., c] * scales[c % number of scales], with channels innermost, rounded to bf16 numbers in
/// `Out`.
template <class Out>
void scale_typed(const Tensor& x, const Tensor& scales, std::int64_t channels, Tensor& out) {
  const auto each = each_channel(scales, channels);
  // Repeating the scales gives vectors a long inner loop even for a few channels.
  const auto all = repeated<float>(each.data(), channels);
  const auto* from = x.data<float>(x.layout());
  auto* to = out.mutable_data<Out>(out.layout());
  const RunBlocks blocks(x.numel(), channels);
  parallel_blocks(blocks, [&](std::int64_t begin, std::int64_t end) {
    scale_to_bf16(from + begin, end - begin, blocks.width, all.data(), to + begin);
  });
}

}  // namespace

void product_scale(const Tensor& s_x, const Tensor& s_w, const Tensor& bias, std::int32_t room,
                   const std::string& nan_text, Tensor& scale, Tensor& codes) {
  auto* out = scale.mutable_data<float>();
  for (std::int64_t c = 0; c < scale.numel(); ++c)
    out[c] = scalar::mul_(s_x.data<float>()[0], s_w.data<float>()[c % s_w.numel()]);
  if (bias.defined()) bias_codes(bias, scale, room, nan_text, codes);
}

// y: [.., C] in memory order. A missing bias is a bias of 0, as in the tile kernels.
void scale_products(Tensor& y, const Tensor& scale, const Tensor& bias) {
  if (y.numel() == 0) return;
  const std::int64_t channels = y.layout() == Layout::channels_last ? y.dim(1) : y.dim(-1);
  const Tensor b = bias.defined() ? bias : Tensor::zeros({channels});
  const auto factors = each_channel(scale, channels);
  const auto multiply = repeated<float>(factors.data(), channels),
             add = repeated<float>(b.data<float>(), channels);
  auto* values = y.mutable_data<float>(y.layout());
  const RunBlocks blocks(y.numel(), channels);
  parallel_blocks(blocks, [&](std::int64_t begin, std::int64_t end) {
    scale_and_add(values + begin, end - begin, blocks.width, multiply.data(), add.data());
  });
}

void multiply_scaled(const detail::Factor& a, const detail::Factor& b, const Tensor& scale,
                     const Tensor& bias, Tensor& y) {
  const Matrix left{a.tensor.raw(), a.tensor.dtype(), a.rows, a.columns, a.transposed},
      right{b.tensor.raw(), b.tensor.dtype(), b.rows, b.columns, b.transposed};
  // The tile kernels apply scale and bias while the sums are in the cache.
  if (!tiles_are_faster(left, right, Sharing::by_shape)) {
    multiply(a, b, y, 1, Sharing::by_shape);
    return scale_products(y, scale, bias);
  }
  const auto factors = each_channel(scale, b.columns);
  const auto add = bias.defined() ? each_channel(bias, b.columns) : std::vector<float>(factors.size());
  multiply_by_tiles(left, right, y.mutable_data<float>(), {factors.data(), add.data()});
}

void scale_to_bf16(const Tensor& x, const Tensor& scales, std::int64_t channels, Tensor& out) {
  if (scales.numel() == 1) channels = 1024;  // one scale: use long runs
  out.dtype() == DType::bf16 ? scale_typed<bfloat16>(x, scales, channels, out)
                             : scale_typed<float>(x, scales, channels, out);
}

void scale_gradient(const detail::PendingGradient& dy, const Tensor& scales, std::int64_t channels,
                    Tensor& out, Tensor& db) {
  const Tensor& x = dy.values;
  if (!db.defined()) return scale_to_bf16(x, scales, channels, out);
  // Rows of fewer channels are too short for vectors. Two passes over long runs are then faster.
  constexpr std::int64_t many = 64;
  if (channels < many) {
    scale_to_bf16(x, scales, channels, out);
    return bias_gradient(x, db);
  }
  const auto each = each_channel(scales, channels);
  const auto* from = x.data<float>(x.layout());
  const auto scale_rows = [&](auto* to) {
    sum_columns(x.numel() / channels, channels, db.mutable_data<float>(), [&](std::int64_t r, float* sum) {
      scale_and_sum(from + r * channels, channels, each.data(), to + r * channels, sum);
    });
  };
  out.dtype() == DType::bf16 ? scale_rows(out.mutable_data<bfloat16>(out.layout()))
                             : scale_rows(out.mutable_data<float>(out.layout()));
}

// The product that gave dw had dy * s_w as its left factor and codes of x as its right one. The true gradient
// is that product times s_x / s_w.
void scale_weight_gradient(Tensor& dw, const Tensor& s_x, const Tensor& s_w, int axis, const Tensor& mask) {
  const AxisView view = axis_view(dw.shape(), axis);
  const auto *x_scale = s_x.data<float>(), *w_scale = s_w.data<float>();
  auto* values = dw.mutable_data<float>();
#pragma omp parallel for schedule(static) if (dw.numel() > 65536)
  for (std::int64_t row = 0; row < view.outer * view.size; ++row) {
    const float factor = scalar::div_(*x_scale, w_scale[row % view.size % s_w.numel()]);
    float* v = values + row * view.inner;
    for (std::int64_t i = 0; i < view.inner; ++i) v[i] *= factor;
  }
  if (mask.defined()) apply_mask(dw, mask, dw);
}

}  // namespace fq::cpu
