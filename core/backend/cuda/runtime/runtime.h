#pragma once

/// The GPUs of this machine. Builds without CUDA have the same functions: they report no device, and the
/// others throw BackendError. kernel_columns.h declares memory and copies.
///
/// Each device has one stream. All work on it runs in the order of the calls of all threads.

#include <cstdint>
#include <string>

#include "fakequant/core/device.h"

namespace fq::cuda {

/// Returns the number of usable GPUs: 0 without a driver, with a driver that is too old, and in builds
/// without CUDA.
[[nodiscard]] int device_count() noexcept;
/// Returns why there is no GPU, for messages. Empty if there is one.
[[nodiscard]] std::string why_unusable();
/// Returns a description: "NVIDIA H200, 141 GB, compute 9.0". Throws BackendError for a device that does not
/// exist.
[[nodiscard]] std::string describe_device(Device device);

/// Result of a trial run of a kernel on a GPU.
struct Trial {
  bool works;
  std::string text;  ///< name of the GPU and free memory, or the reason why it cannot be used
};
/// Runs a kernel and reads its result back. A GPU with less than 256 MB free cannot be used.
[[nodiscard]] Trial try_device(Device device);

/// See core/detail/device_traits.h.
[[nodiscard]] std::string code_type(Device device);

/// Numbers of calls to all devices since the process began. Tests use them to check that no call waits, or
/// that a graph is launched. They are 0 in builds without CUDA.
struct Counts {
  std::int64_t launches, waits, graphs;  ///< own kernels, waits of the host, graphs
};
[[nodiscard]] Counts counts() noexcept;

void count_launch() noexcept;
void count_wait() noexcept;
void count_graph() noexcept;

}  // namespace fq::cuda
