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

/// f(x, arguments..), its result on the device of x. Where the host cannot read that device's memory, f gets
/// x and the other tensors on the host. Structs of tensors have a `moved`, `to_host` and `tensor_device` of
/// their own.
template <class R, class... Parameters, class X, class... Arguments>
R through_host(R (*f)(Parameters...), const X& x, const Arguments&... arguments) {
  const Device device = tensor_device(x);
  if (!device_traits(device).own_memory) return f(x, arguments...);
  return moved(f(to_host(x), to_host(arguments)...), device);
}

}  // namespace fq::detail
