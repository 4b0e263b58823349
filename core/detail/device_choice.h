#pragma once

/// The device of "auto", and what a GPU does with codes.

#include <string>

#include "fakequant/core/device.h"

namespace fq::detail {

/// The first GPU that runs a kernel and has some memory left, else the CPU; found once, and logged with the
/// reason: as info, or as a warning where GPUs are there and none can be used.
[[nodiscard]] Device chosen_device();

/// What a GPU multiplies codes as: "s8", or "bf16 (s8: products of full-range codes come out wrong)". Tries
/// it with the first call. Throws BackendError for a GPU that cannot be used.
[[nodiscard]] std::string code_type(Device gpu);

}  // namespace fq::detail
