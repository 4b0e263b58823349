#pragma once

/// Objects of Python: their type, and arrays over their memory by DLPack's C table if the type has it, else
/// by DLPack or the buffer protocol. These functions require the interpreter's lock.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "fakequant/core/device.h"
#include "fakequant/core/tensor.h"

namespace fq::python {

namespace nb = nanobind;

[[nodiscard]] std::string as_string(nb::handle value);
/// Returns the class name with its module, "numpy.ndarray". Built-in types have no module.
[[nodiscard]] std::string class_name(nb::handle value);
/// Returns whether the class of `value` belongs to torch. False for an invalid handle and None.
[[nodiscard]] bool is_torch(nb::handle value);
[[nodiscard]] bool requires_gradient(nb::handle value);
/// Returns whether `value` is an int or a float. A bool is not a number.
[[nodiscard]] bool is_number(nb::handle value);
/// Returns whether `value` is a list or a tuple.
[[nodiscard]] bool is_list(nb::handle value);

namespace nb = nanobind;

/// Array of another library. `release` may run on any thread, also after the interpreter has ended.
struct Foreign {
  void* data = nullptr;
  Shape shape;
  std::vector<std::int64_t> strides;
  nb::dlpack::dtype dtype;
  std::int32_t device_type = 0, device_id = 0;
  std::function<void()> release;

  /// These return nullopt for element types and strides that Tensor does not have, and for devices other than
  /// CPUs and CUDA GPUs.
  [[nodiscard]] std::optional<DType> type() const;
  [[nodiscard]] std::optional<Layout> layout() const;
  [[nodiscard]] std::optional<Device> device() const;
};

/// Returns the array of `value`, or nullopt if `value` is not an array. A torch tensor is detached first
/// unless `fleeting`, which says that the array is used only during the call: a later `x.data = ..` replaces
/// the memory of x, and the detached tensor keeps the old memory.
[[nodiscard]] std::optional<Foreign> foreign_array(nb::handle value, bool fleeting);

/// Orders the work on the array: work of the library waits for the stream of the array, and later work of the
/// owner of the array waits for the library.
void put_in_order(Foreign& array, nb::handle value, Device device);

}  // namespace fq::python
