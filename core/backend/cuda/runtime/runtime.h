#pragma once

/// The GPUs of this machine. Builds without CUDA have the same functions: no device, and every other one
/// throws BackendError. kernel_columns.h declares memory and copies.
///
/// All work on a device is in its one stream, in the order of the calls of all threads.

#include <string>

#include "fakequant/core/device.h"

namespace fq::cuda {

/// GPUs that can be used: 0 without a driver, with one that is too old, and in builds without CUDA.
[[nodiscard]] int device_count() noexcept;
/// Why there is none, for messages; empty where there is one.
[[nodiscard]] std::string why_unusable();
/// "NVIDIA H200, 141 GB, compute 9.0". Throws BackendError for a device that is not there.
[[nodiscard]] std::string describe_device(Device device);

}  // namespace fq::cuda
