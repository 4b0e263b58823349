#pragma once

/// NumPy arrays in files.

#include <string>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Reads a .npy file of format version 1 to 3 with at most 2^31 bytes. Booleans become u8, unsigned 16-bit
/// integers become i32, and wider unsigned integers i64. Throws FileError for other files, for text, objects
/// (which are never unpickled), records and complex numbers, and for damaged files.
[[nodiscard]] Tensor read_npy(const std::string& path);

}  // namespace fq::detail
