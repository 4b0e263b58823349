#include "fakequant/core/backend/cpu/elementwise/activations.h"

#include <algorithm>

#include "fakequant/core/backend/cpu/codes/stretch_values.h"
#include "fakequant/core/backend/cpu/elementwise/function_kernels.h"
#include "fakequant/core/backend/cpu/elementwise/gelu_table.h"
#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/parallel_for.h"
#include "fakequant/core/detail/convert.h"

namespace fq::cpu {
namespace {

/// f(first, count) of parts of n elements, shared among threads.
template <class F>
void for_parts(std::int64_t n, F&& f, std::int64_t part = 8192) {
  detail::parallel_for((n + part - 1) / part, n > parallel_elements,
                       [&](std::int64_t i) { f(i * part, std::min(part, n - i * part)); });
}

/// f(first, count, values) of the n values of sums, by parts that stay in the first cache.
template <class F>
void for_values(const Accumulator& x, std::int64_t n, F&& f) {
  constexpr std::int64_t part = 2048;
  const StretchValues read(x);
  for_parts(
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

/// What computes many of f32 at once; null where the formula is computed for each.
ActivationValues kernel_of_values(const detail::Activation& activation) {
  if (std::holds_alternative<detail::Gelu>(activation.f)) return gelu_values;
  if (std::holds_alternative<detail::Silu>(activation.f)) return silu_values;
  return std::holds_alternative<detail::GgmlGelu>(activation.f) ? ggml_gelu_values : nullptr;
}
ActivationGradients kernel_of_gradients(const detail::Activation& activation) {
  const auto* table = std::get_if<detail::GgmlGelu>(&activation.f);
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
    return for_parts(x.numel(), [&](std::int64_t i, std::int64_t n) { values(in + i, n, out + i); });
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
    return for_parts(dy.numel(),
                     [&](std::int64_t i, std::int64_t n) { gradients(g + i, in + i, n, out + i); });
  }
  detail::visit_float(dy.dtype(), "backward", [&]<class T>(T) {
    std::visit([&](auto f) { map<T>(dy, saved, dx, [f](T g, T v) { return g * f.slope(v); }); },
               activation.f);
  });
}

bool activates_sums(const Accumulator& x, const detail::Activation& activation) {
  return !x.relu && StretchValues::can_read(x) && kernel_of_values(activation) != nullptr &&
         kernel_of_gradients(activation) != nullptr;
}

void activate(const Accumulator& x, const detail::Activation& activation, Tensor& y) {
  const ActivationValues values = kernel_of_values(activation);
  auto* out = y.mutable_data<float>(y.layout());
  for_values(x, y.numel(),
             [&](std::int64_t i, std::int64_t n, const float* sums) { values(sums, n, out + i); });
}

void activate_backward(const Tensor& dy, const Accumulator& x, const detail::Activation& activation,
                       Tensor& dx) {
  const ActivationGradients gradients = kernel_of_gradients(activation);
  const float* g = dy.data<float>(dy.layout());
  auto* out = dx.mutable_data<float>(dy.layout());
  for_values(x, dy.numel(),
             [&](std::int64_t i, std::int64_t n, const float* sums) { gradients(g + i, sums, n, out + i); });
}

}  // namespace fq::cpu
