#pragma once

/// The table of a device's kernels. kernel_list.def has the signature and the contract of each kernel; `run`
/// is the only switch on the device.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fakequant/core/accumulator.h"
#include "fakequant/core/backend/attention_rows.h"
#include "fakequant/core/backend/batch_norm_numbers.h"
#include "fakequant/core/backend/kernel_arguments.h"
#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/backend/ranges.h"
#include "fakequant/core/backend/updates.h"
#include "fakequant/core/blocks/detail/pool_windows.h"
#include "fakequant/core/device.h"
#include "fakequant/core/format.h"
#include "fakequant/core/numerics/detail/arithmetic.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/quantized.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

struct Activation;
struct PendingGradient;
enum class GgmlRounding : unsigned char;

/// Arguments of a kernel that quantizes a tensor to out.codes and, if defined, out.mask. A NaN throws
/// NumericError with `nan_text`: at once, or on a GPU when a value is read back next.
struct QuantizeCall {
  const Tensor& x;  ///< f32, in the layout of the codes
  QuantizedTensor& out;
  std::string nan_text;
};

/// The updates of optimizers, for parameters of one type.
template <class T>
struct UpdateKernels {
#define FQ_KERNEL(result, name, parameters)
#define FQ_UPDATE_KERNEL(result, name, parameters) result(*name) parameters;
#include "fakequant/core/backend/kernel_list.def"
};

struct Kernels {
#define FQ_KERNEL(result, name, parameters) result(*name) parameters;
#include "fakequant/core/backend/kernel_list.def"
  UpdateKernels<float> update_f32;
  UpdateKernels<double> update_f64;

  /// Returns the device's table. Throws BackendError for CUDA in builds without it.
  [[nodiscard]] static const Kernels& of(Device device);
};

[[noreturn]] void throw_no_cuda();
/// Returns the number of usable GPUs: 0 without a driver, with a driver that is too old, and in builds
/// without CUDA.
[[nodiscard]] int gpu_count() noexcept;
/// Returns a description: "NVIDIA H200, 141 GB, compute 9.0". Throws BackendError with the reason for a
/// device that does not exist.
[[nodiscard]] std::string describe_gpu(Device device);
/// Returns the device's table, or null for CUDA in builds without it.
[[nodiscard]] const Kernels* find_kernels(Device device) noexcept;

/// Calls a kernel of the device's table. Computes nothing on `meta`, where the result is empty.
template <class Table, class R, class... P, class... A>
R run(Device device, R (*Table::*kernel)(P...), A&&... arguments) {
  if (device.is_meta()) return R();
  return (Table::of(device).*kernel)(std::forward<A>(arguments)...);
}

}  // namespace fq::detail
