#pragma once

/// What kind of object an argument from Python is. With the interpreter's lock.

#include <string>

#include <nanobind/nanobind.h>

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

}  // namespace fq::python
