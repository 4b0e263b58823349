#pragma once

/// The GPUs of this machine. Builds without CUDA have the same functions: no device, and every other one
/// throws BackendError. kernel_columns.h declares memory and copies.
///
/// All work on a device is in its one stream, in the order of the calls of all threads.

#include <cstdint>
#include <string>

#include "fakequant/core/device.h"

namespace fq::cuda {

/// GPUs that can be used: 0 without a driver, with one that is too old, and in builds without CUDA.
[[nodiscard]] int device_count() noexcept;
/// Why there is none, for messages; empty where there is one.
[[nodiscard]] std::string why_unusable();
/// "NVIDIA H200, 141 GB, compute 9.0". Throws BackendError for a device that is not there.
[[nodiscard]] std::string describe_device(Device device);

/// The result of running a kernel on a GPU.
struct Trial {
  bool works;
  std::string text;  ///< what the GPU is and how much of its memory is free, or why it cannot be used
};
/// Runs a kernel and reads its result back. A GPU with less than 256 MB free cannot be used.
[[nodiscard]] Trial try_device(Device device);

/// See core/detail/device_traits.h.
[[nodiscard]] std::string code_type(Device device);

/// Counts of the calls to all devices since the process began. Tests read them to check that nothing
/// waits, or that a graph is launched. They are 0 in builds without CUDA.
struct Counts {
  std::int64_t launches, waits, graphs;  ///< of own kernels, by the host, and of graphs
};
[[nodiscard]] Counts counts() noexcept;

void count_launch() noexcept;
void count_wait() noexcept;
void count_graph() noexcept;

}  // namespace fq::cuda
