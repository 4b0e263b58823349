#pragma once

/// Functions that are loops on the host, for tensors of a GPU. Their tensors are copied to the host, which
/// waits, and the results back; gradients take the same way.

#include "fakequant/core/detail/device_traits.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/variable.h"

namespace fq::detail {

[[nodiscard]] inline Tensor moved(const Tensor& x, Device device) { return x.to(device); }
[[nodiscard]] inline Variable moved(const Variable& x, Device device) {
  if (!x.defined() || x.device() == device) return x;
  const Variable v = x.as_float();
  return record("to_device", v.tensor().to(device), {v},
                [from = v.device()](const Tensor& dy) { return std::vector<Tensor>{dy.to(from)}; });
}
/// Moves a pair of tensors.
template <class Both>
[[nodiscard]] Both moved(const Both& both, Device device) {
  const auto& [first, second] = both;
  return {moved(first, device), moved(second, device)};
}

template <class T>
[[nodiscard]] const T& to_host(const T& argument) {
  return argument;
}
[[nodiscard]] inline Tensor to_host(const Tensor& x) { return moved(x, Device::cpu()); }
[[nodiscard]] inline Variable to_host(const Variable& x) { return moved(x, Device::cpu()); }
template <class T>
[[nodiscard]] Device tensor_device(const T& x) {
  return x.device();
}

/// Whether the host cannot read the memory of x.
template <class X>
[[nodiscard]] bool needs_host(const X& x) {
  return device_traits(tensor_device(x)).own_memory;
}

/// Returns f(x, arguments..) with x and the other tensors on the host, and the result on the device of x.
/// Structs of tensors have a `moved`, `to_host` and `tensor_device` of their own.
template <class R, class... Parameters, class X, class... Arguments>
R on_host(R (*f)(Parameters...), const X& x, const Arguments&... arguments) {
  return moved(f(to_host(x), to_host(arguments)...), tensor_device(x));
}

/// Returns f(x, arguments..), on the host if it cannot read the memory of x.
template <class R, class... Parameters, class X, class... Arguments>
R through_host(R (*f)(Parameters...), const X& x, const Arguments&... arguments) {
  return needs_host(x) ? on_host(f, x, arguments...) : f(x, arguments...);
}

}  // namespace fq::detail
