#include "fakequant/core/backend/cpu/elementwise/activations.h"

#include <algorithm>
#include <vector>

#include "fakequant/core/backend/cpu/codes/stretch_values.h"
#include "fakequant/core/backend/cpu/elementwise/function_kernels.h"
#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"

namespace fq::cpu {
namespace {

// ggml computes GELU from a table of all f16 inputs.
std::vector<float> gelu_entries() {
  std::vector<float> out(1 << 16);
  for (std::uint32_t bits = 0; bits < out.size(); ++bits)
    out[bits] = detail::ggml_gelu_entry(detail::f16_value(static_cast<std::uint16_t>(bits)));
  return out;
}

/// Computes y[i] = ggml_gelu(x[i]), with the bits of the formula. The table is built on the first call.
void ggml_gelu_values(const float* x, std::int64_t n, float* y) {
  static const std::vector<float> entries = gelu_entries();
  for (std::int64_t i = read_gelu_entries(x, n, entries.data(), y); i < n; ++i) {
    const float v = x[i];
    y[i] = v <= -10.0f ? 0.0f : (v >= 10.0f ? v : entries[detail::f16_bits(v)]);
  }
}

/// Calls f(first, count) for parts of n elements, shared among threads.
template <class F>
void visit_parts(std::int64_t n, F&& f, std::int64_t part = 8192) {
  detail::parallel_for((n + part - 1) / part, n > parallel_elements,
                       [&](std::int64_t i) { f(i * part, std::min(part, n - i * part)); });
}

/// Calls f(first, count, values) for the n values of sums, in parts that fit into the first-level cache.
template <class F>
void visit_values(const Accumulator& x, std::int64_t n, F&& f) {
  constexpr std::int64_t part = 2048;
  const StretchValues read(x);
  visit_parts(
      n,
      [&](std::int64_t i, std::int64_t count) {
        float values[part];
        read(i, count, values);
        f(i, count, values);
      },
      part);
}

using ActivationValues = void (*)(const float* x, std::int64_t n, float* y);
using ActivationGradients = void (*)(const float* dy, const float* x, std::int64_t n, float* dx);

/// Returns the vector kernel for f32, or null if the formula is computed per element.
ActivationValues kernel_of_values(const detail::Activation& activation) {
  if (std::holds_alternative<detail::Gelu>(activation.f)) return gelu_values;
  if (std::holds_alternative<detail::Silu>(activation.f)) return silu_values;
  return std::holds_alternative<detail::GgmlGelu>(activation.f) ? ggml_gelu_values : nullptr;
}
ActivationGradients kernel_of_gradients(const detail::Activation& activation) {
  const auto* table = std::get_if<detail::GgmlGelu>(&activation.f);
  // The table has no derivative: backward uses the exact GELU. With `by_tanh`, the slope of the tanh form is
  // computed per element.
  if (std::holds_alternative<detail::Gelu>(activation.f) || (table != nullptr && !table->by_tanh))
    return gelu_gradients;
  return std::holds_alternative<detail::Silu>(activation.f) ? silu_gradients : nullptr;
}

}  // namespace

void activate(const Tensor& x, const detail::Activation& activation, Tensor& y) {
  if (const ActivationValues values = kernel_of_values(activation);
      values != nullptr && x.dtype() == DType::f32) {
    const float* in = x.data<float>(x.layout());
    float* out = y.mutable_data<float>(x.layout());
    return visit_parts(x.numel(), [&](std::int64_t i, std::int64_t n) { values(in + i, n, out + i); });
  }
  detail::visit_float(x.dtype(), "activation", [&]<class T>(T) {
    std::visit([&](auto f) { map<T>(x, y, [f](T v) { return f.value(v); }); }, activation.f);
  });
}

void activate_backward(const Tensor& dy, const Tensor& saved, const detail::Activation& activation,
                       Tensor& dx) {
  if (const ActivationGradients gradients = kernel_of_gradients(activation);
      gradients != nullptr && dy.dtype() == DType::f32) {
    const float *g = dy.data<float>(dy.layout()), *in = saved.data<float>(dy.layout());
    float* out = dx.mutable_data<float>(dy.layout());
    return visit_parts(dy.numel(),
                       [&](std::int64_t i, std::int64_t n) { gradients(g + i, in + i, n, out + i); });
  }
  detail::visit_float(dy.dtype(), "backward", [&]<class T>(T) {
    std::visit([&](auto f) { map<T>(dy, saved, dx, [f](T g, T v) { return g * f.slope(v); }); },
               activation.f);
  });
}

// Backward computes the values from the sums again, so that no f32 tensor is kept.
bool activates_sums(const Accumulator& x, const detail::Activation& activation) {
  return !x.relu && StretchValues::can_read(x) && kernel_of_values(activation) != nullptr &&
         kernel_of_gradients(activation) != nullptr;
}

void activate(const Accumulator& x, const detail::Activation& activation, Tensor& y) {
  const ActivationValues values = kernel_of_values(activation);
  auto* out = y.mutable_data<float>(y.layout());
  visit_values(x, y.numel(),
               [&](std::int64_t i, std::int64_t n, const float* sums) { values(sums, n, out + i); });
}

void activate_backward(const Tensor& dy, const Accumulator& x, const detail::Activation& activation,
                       Tensor& dx) {
  const ActivationGradients gradients = kernel_of_gradients(activation);
  const float* g = dy.data<float>(dy.layout());
  auto* out = dx.mutable_data<float>(dy.layout());
  visit_values(x, dy.numel(), [&](std::int64_t i, std::int64_t n, const float* sums) {
    gradients(g + i, sums, n, out + i);
  });
}

void keep_mask(const detail::DropoutBlocks& blocks, Tensor& mask) {
  auto* keep = mask.mutable_data<std::uint8_t>();
  const std::int64_t count = mask.numel();
#pragma omp parallel for schedule(static) if (count > 16384)
  // A Philox counter gives four numbers. The mask depends only on seed, step and position, not on threads.
  for (std::int64_t block = 0; block < (count + 3) / 4; ++block) {
    std::uint8_t four[4];
    blocks.keep(block, four);
    std::copy_n(four, std::min<std::int64_t>(count - 4 * block, 4), keep + 4 * block);
  }
}

void keep(const Tensor& x, const Tensor& mask, double scale, Tensor& y) {
  const auto* keep = mask.data<std::uint8_t>(mask.layout());
  detail::visit_float(x.dtype(), "dropout", [&]<class T>(T) {
    const T* in = x.data<T>(x.layout());
    T* out = y.mutable_data<T>(y.layout());
    const detail::Kept<T> kept{static_cast<T>(scale)};
#pragma omp parallel for simd schedule(static) if (x.numel() > parallel_elements)
    for (std::int64_t i = 0; i < x.numel(); ++i) out[i] = kept(in[i], keep[i]);
  });
}

}  // namespace fq::cpu
