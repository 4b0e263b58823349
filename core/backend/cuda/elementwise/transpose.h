#pragma once

/// Matrices turned over.

#include <cstdint>

#include "fakequant/core/device.h"

namespace fq::cuda {

/// y = the transposes of `images` matrices of rows * columns words of 8, 16, 32 or 64 bits.
void transpose(const void* x, void* y, int bits, std::int64_t images, std::int64_t rows, std::int64_t columns,
               Device device);

}  // namespace fq::cuda
