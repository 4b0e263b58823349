#include "fakequant/core/ops/products.h"

#include <algorithm>
#include <vector>

#include "fakequant/core/convert.h"
#include "fakequant/core/cpu/reference.h"
#include "fakequant/core/cuda/bias.h"
#include "fakequant/core/cuda/conv.h"
#include "fakequant/core/cuda/matmul.h"

namespace fq::detail {
namespace {

constexpr auto nhwc = Layout::channels_last;

template <class T>
void multiply_loops(const Factor& a, const Factor& b, T* out, std::int64_t batch) {
  const std::int64_t m = a.rows, n = b.columns, k = a.columns;
  for (std::int64_t i = 0; i < batch; ++i)
    cpu::reference_gemm<T>(m, n, k, a.tensor.data<T>() + i * m * k, a.transposed,
                           b.tensor.data<T>() + i * k * n, b.transposed, out + i * m * n);
}

}  // namespace

DType product_dtype(const Tensor& factor) { return factor.dtype() == DType::f64 ? DType::f64 : DType::f32; }

void check_factors(const Tensor& x, const Tensor& w, std::string_view function) {
  FQ_CHECK(x.dtype() == w.dtype() && (x.dtype() == DType::f32 || x.dtype() == DType::f64), function,
           "the input is {}, the weight {}: give both as f32, or both as f64", name(x.dtype()),
           name(w.dtype()));
  FQ_CHECK(x.device() == w.device(), function,
           "the input is on {}, the weight on {}: give both on one device", to_string(x.device()),
           to_string(w.device()));
}

void check_bias(const Variable& bias, std::int64_t channels, const Variable& x, std::string_view function) {
  if (!bias.defined()) return;
  FQ_CHECK(bias.shape() == Shape{channels}, function, "the bias is {}, the output has {} channels: give [{}]",
           to_string(bias.shape()), channels, channels);
  FQ_CHECK(bias.device() == x.device(), function,
           "the bias is on {}, the input on {}: give both on one device", to_string(bias.device()),
           to_string(x.device()));
  const auto* floats = std::get_if<Tensor>(&x.value());
  const DType dtype = floats != nullptr ? floats->dtype() : DType::f32;
  const auto* values = std::get_if<Tensor>(&bias.value());
  FQ_CHECK(values != nullptr && values->dtype() == dtype, function,
           "the bias is not {} as the input is: convert it", name(dtype));
}

void multiply(const Factor& a, const Factor& b, Tensor& out, std::int64_t batch, cpu::Sharing sharing) {
  if (out.device().is_meta()) return;
  if (out.device().is_cuda())
    return cuda::gemm({a.tensor.raw(), a.tensor.dtype(), a.rows, a.columns, a.transposed},
                      {b.tensor.raw(), b.tensor.dtype(), b.rows, b.columns, b.transposed},
                      {out.mutable_raw(), out.dtype()}, batch, out.device());
  if (out.dtype() == DType::f64) return multiply_loops(a, b, out.mutable_data<double>(), batch);
  cpu::gemm({a.tensor.raw(), a.tensor.dtype(), a.rows, a.columns, a.transposed},
            {b.tensor.raw(), b.tensor.dtype(), b.rows, b.columns, b.transposed}, out.mutable_data<float>(),
            batch, sharing);
}

Tensor conv_y(const cpu::ConvShape& shape, const Tensor& x, const Tensor& w, cpu::Sharing sharing) {
  Tensor y = Tensor::empty(shape.y_shape(), product_dtype(x), x.device(), nhwc);
  if (y.device().is_meta()) return y;
  if (y.device().is_cuda())
    cuda::conv_forward(shape, x.raw(), w.raw(), x.dtype(), y.mutable_raw(), y.device());
  else if (y.dtype() == DType::f64)
    cpu::reference_conv_forward<double>(shape, x.data<double>(nhwc), w.data<double>(),
                                        y.mutable_data<double>(nhwc));
  else
    cpu::conv_forward(shape, x.raw(), x.dtype(), w.raw(), w.dtype(), y.mutable_data<float>(nhwc), sharing);
  return y;
}

Tensor conv_dx(const cpu::ConvShape& shape, const Tensor& dy, const Tensor& w, cpu::Sharing sharing) {
  if (dy.device().is_cuda()) {
    Tensor dx = Tensor::empty(shape.x_shape(), product_dtype(dy), dy.device(), nhwc);
    cuda::conv_backward_data(shape, dy.raw(), w.raw(), dy.dtype(), dx.mutable_raw(), dy.device());
    return dx;
  }
  if (dy.dtype() == DType::f64) {
    Tensor dx = Tensor::zeros(shape.x_shape(), DType::f64, dy.device(), nhwc);
    if (dx.device().is_meta()) return dx;
    cpu::reference_conv_backward_data(shape, dy.data<double>(nhwc), w.data<double>(),
                                      dx.mutable_data<double>(nhwc));
    return dx;
  }
  Tensor dx = Tensor::empty(shape.x_shape(), DType::f32, dy.device(), nhwc);
  if (dx.device().is_meta()) return dx;
  cpu::conv_backward_data(shape, dy.raw(), w.raw(), dy.dtype(), dx.mutable_data<float>(nhwc), sharing);
  return dx;
}

Tensor conv_dw(const cpu::ConvShape& shape, const Tensor& x, const Tensor& dy) {
  if (dy.device().is_cuda()) {
    Tensor dw = Tensor::empty(shape.w_shape(), product_dtype(dy), dy.device());
    cuda::conv_backward_weights(shape, x.raw(), dy.raw(), dy.dtype(), dw.mutable_raw(), dy.device());
    return dw;
  }
  if (dy.dtype() == DType::f64) {
    Tensor dw = Tensor::zeros(shape.w_shape(), DType::f64, dy.device());
    if (dw.device().is_meta()) return dw;
    cpu::reference_conv_backward_weights(shape, x.data<double>(nhwc), dy.data<double>(nhwc),
                                         dw.mutable_data<double>());
    return dw;
  }
  Tensor dw = Tensor::empty(shape.w_shape(), DType::f32, dy.device());
  if (dw.device().is_meta()) return dw;
  cpu::conv_backward_weights(shape, x.raw(), dy.raw(), dy.dtype(), dw.mutable_data<float>());
  return dw;
}

void add_bias(Tensor& y, const Variable& bias) {
  if (!bias.defined() || y.device().is_meta() || y.numel() == 0) return;
  const Tensor b = bias.tensor();
  if (y.device().is_cuda()) return cuda::add_bias(b, y);
  visit_float(y.dtype(), "bias", [&]<class T>(T) {
    const std::int64_t channels = b.numel(), rows = y.numel() / channels;
    const T* from = b.data<T>();
    T* to = y.mutable_data<T>(y.layout());
#pragma omp parallel for schedule(static) if (rows * channels > 32768)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < channels; ++c) to[r * channels + c] += from[c];
  });
}

Tensor bias_gradient(const Tensor& dy, std::int64_t channels) {
  Tensor db = Tensor::zeros({channels}, dy.dtype(), dy.device());
  if (dy.device().is_meta() || dy.numel() == 0) return db;
  if (dy.device().is_cuda()) {
    cuda::bias_gradient(dy, db);
    return db;
  }
  constexpr std::int64_t block = 256;  // rows: sums of blocks are added in their order
  const std::int64_t rows = dy.numel() / channels, blocks = (rows + block - 1) / block;
  visit_float(dy.dtype(), "bias", [&]<class T>(T) {
    const T* from = dy.data<T>(dy.layout());
    std::vector<T> partial(static_cast<std::size_t>(blocks * channels));
#pragma omp parallel for schedule(static) if (rows * channels > 32768)
    for (std::int64_t i = 0; i < blocks; ++i) {
      T* sum = partial.data() + i * channels;
      for (std::int64_t r = i * block; r < std::min(rows, (i + 1) * block); ++r)
        for (std::int64_t c = 0; c < channels; ++c) sum[c] += from[r * channels + c];
    }
    std::vector<double> total(static_cast<std::size_t>(channels));
    for (std::int64_t i = 0; i < blocks * channels; ++i)
      total[static_cast<std::size_t>(i % channels)] +=
          static_cast<double>(partial[static_cast<std::size_t>(i)]);
    std::ranges::transform(total, db.mutable_data<T>(), [](double value) { return static_cast<T>(value); });
  });
  return db;
}

}  // namespace fq::detail
