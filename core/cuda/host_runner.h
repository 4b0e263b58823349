#pragma once

/// Kernels as host functions: what a launch of one does, thread by thread; not a public header. A runtime
/// without a GPU, as tests have it, finds them here.

#include <cstdint>
#include <functional>

namespace fq::cuda {

/// In which blocks and threads take their turns: no result may depend on it.
enum class Order { forwards, backwards };

/// f(i) for 0 <= i < count.
template <class F>
void in_order(Order order, std::int64_t count, F&& f) {
  for (std::int64_t i = 0; i < count; ++i) f(order == Order::forwards ? i : count - 1 - i);
}

/// A launch of so many blocks with these arguments, those of cudaLaunchKernel, which are copied: what it
/// returns runs it.
using HostRunner = std::function<void(Order)> (*)(std::int64_t blocks, void** arguments);

void set_host_runner(const void* kernel, HostRunner runner);
/// Null for a kernel that was never launched.
[[nodiscard]] HostRunner host_runner(const void* kernel);

}  // namespace fq::cuda
