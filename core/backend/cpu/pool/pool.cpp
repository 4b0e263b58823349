#include <vector>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/cpu/pool/pool_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cpu {
namespace {

/// Calls f(row) in parallel, where `elements` is the total number of elements read.
template <class F>
void each_row(std::int64_t rows, std::int64_t elements, F&& f) {
#pragma omp parallel for schedule(static) if (elements > parallel_elements)
  for (std::int64_t row = 0; row < rows; ++row) f(row);
}

std::int64_t inputs(const PoolSizes& s) { return s.n * s.h * s.w * s.c; }

/// Returns -1 for the channels that pool their smallest sum.
std::vector<std::int32_t> falling(const Tensor& factor) {
  std::vector<std::int32_t> out;
  if (!factor.defined()) return out;
  const auto* f = factor.data<float>();
  for (std::int64_t c = 0; c < factor.numel(); ++c) out.push_back(f[c] < 0.0f ? -1 : 0);
  return out;
}

}  // namespace

void max_pool(const Tensor& x, const PoolSizes& s, Tensor& y, Tensor* argmax, const Tensor& factor) {
  if (argmax != nullptr && argmax->dtype() == DType::i32 && bit_width(x.dtype()) < 32) {
    // Windows of more than 255 positions need positions of 32 bits, and the kernels store them from lanes of
    // at least 32 bits.
    Tensor wide = Tensor::empty(y.shape(), DType::i32, y.device(), y.layout());
    max_pool(x.to(DType::i32), s, wide, argmax, {});
    return y.copy_from(wide.to(x.dtype()));
  }
  const auto flip = falling(factor);
  const MaxPoolRows pool{s,
                         x.dtype(),
                         argmax != nullptr ? argmax->dtype() : DType::u8,
                         x.raw(),
                         flip.empty() ? nullptr : flip.data(),
                         y.mutable_raw(),
                         argmax != nullptr ? argmax->mutable_raw() : nullptr};
  each_row(s.n * s.oh, inputs(s), [&](std::int64_t row) { max_pool_row(pool, row); });
}

void max_pool_backward(const Tensor& dy, const Tensor& argmax, const PoolSizes& s, Tensor& dx) {
  const MaxPoolGradient pool{s, dy.dtype(), argmax.dtype(), dy.raw(), argmax.raw(), dx.mutable_raw()};
  // One task per row of dx: no two tasks write the same element.
  each_row(s.n * s.h, inputs(s), [&](std::int64_t row) { max_pool_row_backward(pool, row); });
}

void avg_pool(const Tensor& x, const PoolSizes& s, bool include_padding, const Tensor& scale, Tensor& y) {
  const AveragePool pool{s,
                         include_padding,
                         x.dtype(),
                         x.raw(),
                         scale.defined() ? scale.data<float>()[0] : 1.0f,
                         y.mutable_raw()};
  each_row(s.n * s.oh, inputs(s), [&](std::int64_t row) { avg_pool_row(pool, row); });
}

void avg_pool_backward(const Tensor& dy, const PoolSizes& s, bool include_padding, Tensor& dx) {
  const AveragePool pool{s, include_padding, dy.dtype(), dy.raw(), 1.0f, dx.mutable_raw()};
  each_row(s.n * s.h, inputs(s), [&](std::int64_t row) { avg_pool_row_backward(pool, row); });
}

void sum_pixels(const Tensor& codes, Tensor& sums) {
  const std::int64_t channels = codes.dim(1), pixels = codes.dim(2) * codes.dim(3);
  const auto* in = static_cast<const std::byte*>(codes.raw());
  auto* out = sums.mutable_data<std::int32_t>(Layout::channels_last);
  const std::int64_t image = byte_size(codes.dtype(), pixels * channels);
  each_row(codes.dim(0), codes.numel(), [&](std::int64_t n) {
    sum_image(in + n * image, codes.dtype(), pixels, channels, out + n * channels);
  });
}

void reorder_e4m3(const Tensor& bytes, Tensor& out) {
  const auto* in = static_cast<const std::uint8_t*>(bytes.raw());
  auto* result = static_cast<std::uint8_t*>(out.mutable_raw());
  for (std::int64_t i = 0; i < bytes.numel(); ++i) result[i] = detail::reordered_e4m3(in[i]);
}

}  // namespace fq::cpu
