#pragma once

/// Arrays of Python as tensors, and back: numpy, torch and whatever speaks DLPack or the buffer protocol,
/// without a copy.

#include <optional>
#include <string_view>
#include <variant>

#include <nanobind/nanobind.h>

#include "fakequant/core/descriptor.h"
#include "fakequant/core/tensor.h"
#include "fakequant/reference/constant.h"

namespace fq::python {

namespace nb = nanobind;

/// One call from Python: the name that messages begin with, and the argument whose kind of array results
/// have.
struct Call {
  std::string_view function;
  nb::handle like = {};

  /// A tensor over the array's own memory, which it keeps alive; undefined for None. 4-D arrays may be
  /// row-major or channels last. Throws ArgumentError naming the argument for what is no array, other
  /// strides, types that DType has not, devices that this build has not, and tensors of torch that require a
  /// gradient. On a GPU the library's work is put after that of the array's stream (exchange.h).
  [[nodiscard]] Tensor tensor(nb::handle value, std::string_view argument) const;
  /// The same, copied to the CPU where it lies on a GPU.
  [[nodiscard]] Tensor host(nb::handle value, std::string_view argument) const;
  /// The same of a number, a list or an array.
  [[nodiscard]] Amax amax(nb::handle value, std::string_view argument) const;
  /// The same, but an array of a GPU as it is: nothing waits for its numbers.
  [[nodiscard]] std::variant<Amax, Tensor> range(nb::handle value, std::string_view argument) const;
  /// Its values on the CPU.
  [[nodiscard]] Tensor host_amax(nb::handle value, std::string_view argument) const;
  [[nodiscard]] Constant constant(nb::handle value, std::string_view argument) const;
  /// "f32", "float32", numpy.float32, torch.float32, "float8_e4m3fn"; nullopt for None.
  [[nodiscard]] std::optional<DType> dtype(nb::handle value, std::string_view argument) const;
  [[nodiscard]] DType dtype(nb::handle value, std::string_view argument, DType otherwise) const {
    return dtype(value, argument).value_or(otherwise);
  }
  /// 8, or (exponent, mantissa).
  [[nodiscard]] NumBits num_bits(nb::handle value, std::string_view argument) const;

  /// A torch tensor where `like` is one, else a numpy array, over the tensor's own memory; fakequant.Tensor
  /// for types that those have not, and on a GPU for other kinds than torch's. torch's current stream waits
  /// for the work that makes it. None for an undefined tensor.
  [[nodiscard]] nb::object give(const Tensor& tensor) const;
};

/// Returns an array over the memory of a tensor, of a type that the array has: a torch tensor of the kind of
/// `like`, or a numpy array. The owner of `like` waits for the work that makes the tensor.
[[nodiscard]] nb::object array_of(const Tensor& tensor, bool torch, nb::handle like = {});

/// fakequant.Tensor, the handle of any dtype.
void bind_tensor(nb::module_& module);

}  // namespace fq::python
