#pragma once

/// Converts arrays of Python to tensors and back without a copy: numpy, torch, and objects with DLPack or the
/// buffer protocol.

#include <optional>
#include <string_view>
#include <variant>

#include <nanobind/nanobind.h>

#include "fakequant/core/descriptor.h"
#include "fakequant/core/tensor.h"
#include "fakequant/reference/constant.h"

namespace fq::python {

namespace nb = nanobind;

/// One call from Python: the function name for messages, and the argument that sets the array type of
/// results.
struct Call {
  std::string_view function;
  nb::handle like = {};

  /// Returns a tensor over the memory of the array, which the tensor keeps alive; undefined for None. 4-D
  /// arrays may be row-major or channels last. Throws ArgumentError that names the argument if the value is
  /// not an array, is a torch tensor that requires a gradient, or has unsupported strides, an unsupported
  /// element type or device. On a GPU, work of the library waits for the stream of the array
  /// (foreign_stream.h).
  [[nodiscard]] Tensor tensor(nb::handle value, std::string_view argument) const;
  /// Returns the same as `tensor`, copied to the CPU if it is on a GPU.
  [[nodiscard]] Tensor host(nb::handle value, std::string_view argument) const;
  /// Returns the range of a number, a list or an array.
  [[nodiscard]] Amax amax(nb::handle value, std::string_view argument) const;
  /// Returns the same as `amax`, but an array on a GPU as a Tensor, so that the call does not wait for its
  /// values.
  [[nodiscard]] std::variant<Amax, Tensor> range(nb::handle value, std::string_view argument) const;
  /// Returns the values of `amax` as a tensor on the CPU.
  [[nodiscard]] Tensor host_amax(nb::handle value, std::string_view argument) const;
  [[nodiscard]] Constant constant(nb::handle value, std::string_view argument) const;
  /// Returns the element type of "f32", "float32", numpy.float32, torch.float32, "float8_e4m3fn", ..; nullopt
  /// for None. Throws ArgumentError for other values.
  [[nodiscard]] std::optional<DType> dtype(nb::handle value, std::string_view argument) const;
  [[nodiscard]] DType dtype(nb::handle value, std::string_view argument, DType otherwise) const {
    return dtype(value, argument).value_or(otherwise);
  }
  /// Returns the bits of 8 (an integer format) or (exponent, mantissa).
  [[nodiscard]] NumBits num_bits(nb::handle value, std::string_view argument) const;

  /// Returns an array over the memory of the tensor: a torch tensor if `like` is one, else a numpy array.
  /// Returns a fakequant.Tensor if the array library does not have the element type, or for a GPU tensor if
  /// `like` is not a torch tensor. On a GPU, the current stream of torch waits for the work that computes the
  /// tensor. Returns None for an undefined tensor.
  [[nodiscard]] nb::object give(const Tensor& tensor) const;
};

/// Returns an array over the memory of a tensor, whose element type the array library must have: a torch
/// tensor of the type of `like` if `torch`, else a numpy array. The stream of `like` waits for the work that
/// computes the tensor.
[[nodiscard]] nb::object to_array(const Tensor& tensor, bool torch, nb::handle like = {});

/// Binds fakequant.Tensor, which holds any element type.
void bind_tensor(nb::module_& module);

}  // namespace fq::python
