#pragma once

/// The kernels of kernel_list.def: the table of a device, and the functions of each backend.

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"
#include "fakequant/reference/detail/block_scales.h"

namespace fq::detail {

struct ReferenceKernels {
#define FQ_KERNEL(result, name, parameters) result(*name) parameters;
#include "fakequant/reference/kernels/kernel_list.def"

  /// Returns the device's table. Throws BackendError for CUDA in builds without it.
  [[nodiscard]] static const ReferenceKernels& of(Device device);
};

}  // namespace fq::detail

namespace fq::cpu {
#define FQ_KERNEL(result, name, parameters) result name parameters;
#include "fakequant/reference/kernels/kernel_list.def"
}  // namespace fq::cpu

namespace fq::cuda {
#define FQ_KERNEL(result, name, parameters) result name parameters;
#include "fakequant/reference/kernels/kernel_list.def"
extern const detail::ReferenceKernels* const reference_table;  ///< null in builds without CUDA (no_cuda.cpp)
}  // namespace fq::cuda
