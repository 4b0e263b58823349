#pragma once

/// The GPUs of this machine. Builds without CUDA have the same functions: they report no device, and the
/// others throw BackendError. kernel_columns.h declares memory and copies.
///
/// Each device has one stream. All work on it runs in the order of the calls of all threads.

#include <cstdint>
#include <string>
#include <vector>

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

/// Work that one kernel of kernel_list.def has enqueued: own launches, products of cuBLASLt, copies and
/// fills, and the bytes that they read and write. Each of them counts an operand once, whether or not all of
/// it is read. Captured work counts when it is captured, not when its graph is launched.
struct KernelWork {
  std::string kernel;
  std::int64_t launches = 0, products = 0, copies = 0, read = 0, written = 0;
};
/// Counts the work of all threads from now on, beginning with zeros, or stops counting.
void count_work(bool on);
/// Returns the kernels with work, in the order of their names. Empty in builds without CUDA.
[[nodiscard]] std::vector<KernelWork> counted_work();

void count_launch() noexcept;
void count_wait() noexcept;
void count_graph() noexcept;

}  // namespace fq::cuda
