#pragma once

/// Tensors as arrays of Python's.

#include <nanobind/nanobind.h>

#include "fakequant/core/tensor.h"

namespace fq::python {

namespace nb = nanobind;

/// A tensor of torch, of the kind of `like`, or a numpy array, over the same memory, of a type that those
/// have; what `like` belongs to waits for the work that makes it.
[[nodiscard]] nb::object array_of(const Tensor& tensor, bool torch, nb::handle like = {});

}  // namespace fq::python
