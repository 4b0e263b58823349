#pragma once

/// Declares the kernels of kernel_list.def as functions of each backend, and the backends' tables. Sources of
/// kernels include this header: a definition with another signature is an error (-Wmissing-declarations).

#include "fakequant/core/backend/kernels.h"

#define FQ_DECLARE_KERNEL(result, name, parameters) result name parameters;
#define FQ_DECLARE_UPDATE_KERNEL(result, name, parameters) \
  template <class T>                                       \
  result name parameters;

namespace fq::cpu {
#define FQ_KERNEL FQ_DECLARE_KERNEL
#define FQ_CUDA_KERNEL(result, name, parameters)
#define FQ_UPDATE_KERNEL FQ_DECLARE_UPDATE_KERNEL
#include "fakequant/core/backend/kernel_list.def"
extern const detail::Kernels kernel_table;
}  // namespace fq::cpu

namespace fq::cuda {
#define FQ_KERNEL FQ_DECLARE_KERNEL
#define FQ_UPDATE_KERNEL FQ_DECLARE_UPDATE_KERNEL
#include "fakequant/core/backend/kernel_list.def"
extern const detail::Kernels* const kernel_table;  ///< null in builds without CUDA (no_cuda.cpp)
}  // namespace fq::cuda

namespace fq::meta {
extern const detail::Kernels kernel_table;  ///< has memory kernels, which count sizes; other entries are null
}
