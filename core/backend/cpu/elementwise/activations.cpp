#include "fakequant/core/backend/cpu/elementwise/activations.h"

#include <algorithm>

#include "fakequant/core/backend/cpu/elementwise/function_kernels.h"
#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/blocks/detail/parallel_for.h"
#include "fakequant/core/detail/convert.h"

namespace fq::cpu {
namespace {

/// f(first, count) of parts of n elements, shared among threads.
template <class F>
void for_parts(std::int64_t n, F&& f) {
  constexpr std::int64_t part = 8192;
  detail::parallel_for((n + part - 1) / part, n > parallel_elements,
                       [&](std::int64_t i) { f(i * part, std::min(part, n - i * part)); });
}

/// Whether the function has kernels of vectors, of f32, which then have run.
bool by_vectors(const Tensor& x, const detail::Activation& activation, Tensor& y) {
  const bool gelu = std::holds_alternative<detail::Gelu>(activation.f);
  if (x.dtype() != DType::f32 || !(gelu || std::holds_alternative<detail::Silu>(activation.f))) return false;
  const float* in = x.data<float>(x.layout());
  float* out = y.mutable_data<float>(x.layout());
  for_parts(x.numel(), [&](std::int64_t i, std::int64_t n) {
    gelu ? gelu_values(in + i, n, out + i) : silu_values(in + i, n, out + i);
  });
  return true;
}
bool by_vectors(const Tensor& dy, const Tensor& x, const detail::Activation& activation, Tensor& dx) {
  const bool gelu = std::holds_alternative<detail::Gelu>(activation.f);
  if (x.dtype() != DType::f32 || !(gelu || std::holds_alternative<detail::Silu>(activation.f))) return false;
  const float *g = dy.data<float>(dy.layout()), *in = x.data<float>(dy.layout());
  float* out = dx.mutable_data<float>(dy.layout());
  for_parts(x.numel(), [&](std::int64_t i, std::int64_t n) {
    gelu ? gelu_gradients(g + i, in + i, n, out + i) : silu_gradients(g + i, in + i, n, out + i);
  });
  return true;
}

}  // namespace

void activate(const Tensor& x, const detail::Activation& activation, Tensor& y) {
  if (by_vectors(x, activation, y)) return;
  detail::visit_float(x.dtype(), "activation", [&]<class T>(T) {
    std::visit([&](auto f) { map<T>(x, y, [f](T v) { return f.value(v); }); }, activation.f);
  });
}

void activate_backward(const Tensor& dy, const Tensor& saved, const detail::Activation& activation,
                       Tensor& dx) {
  if (by_vectors(dy, saved, activation, dx)) return;
  detail::visit_float(dy.dtype(), "backward", [&]<class T>(T) {
    std::visit([&](auto f) { map<T>(dy, saved, dx, [f](T g, T v) { return g * f.slope(v); }); },
               activation.f);
  });
}

}  // namespace fq::cpu
