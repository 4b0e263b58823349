#pragma once

/// Elements moved within a device.

#include <vector>

#include "fakequant/core/blocks/detail/strided_bits.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// As cpu::permute.
void permute(const Tensor& x, const std::vector<int>& axes, Tensor& y);
/// As core/detail/convert.h.
void relayout(const Tensor& in, Tensor& out);
/// Runs of bytes or bits. `copy` has something to copy; the runs do not overlap. Bits beside them stay.
void copy_runs(const fq::detail::StridedBits& copy, const void* in, void* out, Device device);

}  // namespace fq::cuda
