#pragma once

/// Objects of Python: their kind, and arrays over their own memory, by DLPack's C table if their type has it,
/// else by DLPack or the buffer protocol. These functions require the interpreter's lock.

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

[[nodiscard]] std::string text_of(nb::handle value);
/// "numpy.ndarray"; without the module for Python's own.
[[nodiscard]] std::string class_of(nb::handle value);
/// Of one of torch's classes. Nothing and None are not.
[[nodiscard]] bool is_torch(nb::handle value);
[[nodiscard]] bool requires_gradient(nb::handle value);
/// int or float, no bool.
[[nodiscard]] bool is_number(nb::handle value);
/// list or tuple.
[[nodiscard]] bool is_list(nb::handle value);

namespace nb = nanobind;

/// Somebody's array, and what lets go of it on any thread, also when the interpreter is gone.
struct Foreign {
  void* data = nullptr;
  Shape shape;
  std::vector<std::int64_t> strides;
  nb::dlpack::dtype dtype;
  std::int32_t device_type = 0, device_id = 0;
  std::function<void()> release;

  /// Nothing for types and strides that a Tensor has not, and for other devices than CPUs and CUDA's GPUs.
  [[nodiscard]] std::optional<DType> type() const;
  [[nodiscard]] std::optional<Layout> layout() const;
  [[nodiscard]] std::optional<Device> device() const;
};

/// Nothing for what is no array. Unless it is `fleeting`, used only while the caller waits, the tensor of
/// torch is one of its own over the same memory: `x.data = ..` gives x other memory, whoever reads it.
[[nodiscard]] std::optional<Foreign> foreign_array(nb::handle value, bool fleeting);

/// The library's work comes after that of the array's stream, and what the array's owner does once it is let
/// go of comes after the library's.
void put_in_order(Foreign& array, nb::handle value, Device device);

}  // namespace fq::python
