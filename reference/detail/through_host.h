#pragma once

/// Functions that are loops on the host, for tensors of a GPU. Their tensors are copied to the host, which
/// waits, and the results back; gradients take the same way.

#include "fakequant/core/variable.h"

namespace fq::detail {

[[nodiscard]] inline Tensor moved(const Tensor& x, Device device) { return x.to(device); }
[[nodiscard]] Variable moved(const Variable& x, Device device);
/// Of a pair of these, whatever its type.
template <class Both>
[[nodiscard]] Both moved(const Both& both, Device device) {
  const auto& [first, second] = both;
  return {moved(first, device), moved(second, device)};
}

template <class T>
[[nodiscard]] const T& on_host(const T& argument) {
  return argument;
}
[[nodiscard]] inline Tensor on_host(const Tensor& x) { return moved(x, Device::cpu()); }
[[nodiscard]] inline Variable on_host(const Variable& x) { return moved(x, Device::cpu()); }

/// f(arguments..) of the host, its result on `device`.
template <class F, class... Arguments>
auto through_host(Device device, F&& f, const Arguments&... arguments) {
  return moved(f(on_host(arguments)...), device);
}

}  // namespace fq::detail

/// Returns through_host from `function`, with its own arguments, where the first one is on a GPU.
#define FQ_THROUGH_HOST(function, x, ...)                                                          \
  if ((x).device().is_cuda())                                                                      \
  return ::fq::detail::through_host((x).device(), [](const auto&... a) { return function(a...); }, \
                                    x __VA_OPT__(, ) __VA_ARGS__)
