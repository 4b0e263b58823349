#pragma once

/// Kernels as host functions: what a launch of one does, thread by thread. A runtime without a GPU, as tests
/// have it, finds them here.

#include <array>
#include <cstddef>
#include <cstdint>

namespace fq::cuda {

/// In which blocks and threads take their turns: no result may depend on it.
enum class Order { forwards, backwards };

/// f(i) for 0 <= i < count.
template <class F>
void in_order(Order order, std::int64_t count, F&& f) {
  for (std::int64_t i = 0; i < count; ++i) f(order == Order::forwards ? i : count - 1 - i);
}

/// A kernel as a host function.
struct HostRunner {
  /// Runs a launch of so many blocks with these arguments, those of cudaLaunchKernel.
  void (*run)(std::int64_t blocks, Order order, void** arguments);
  std::array<std::size_t, 2> sizes;  ///< of its arguments, of types that bytes may be copied of
};

void set_host_runner(const void* kernel, HostRunner runner);
/// Of a kernel that was never launched `run` is null.
[[nodiscard]] HostRunner host_runner(const void* kernel);

}  // namespace fq::cuda
