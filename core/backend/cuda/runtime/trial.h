#pragma once

/// Whether a GPU can be worked on.

#include <string>

#include "fakequant/core/device.h"

namespace fq::cuda {

struct Trial {
  bool works;
  std::string text;  ///< what the GPU is and how much of its memory is free, or why it cannot be used
};
/// Runs a kernel and reads its result back. A GPU with less than 256 MB free cannot be used.
[[nodiscard]] Trial try_device(Device device);

/// core/backend/device_choice.h says what it is.
[[nodiscard]] std::string code_type(Device device);

}  // namespace fq::cuda
