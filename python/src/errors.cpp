#include <nanobind/stl/string.h>

#include "bindings.h"
#include "fakequant/core/error.h"

namespace fq::python {
namespace {

enum Class { base, argument, file, numeric, backend, system, count };
PyObject* classes[count];  // as long as the process: translators have no end

/// A class of the module, derived from Error and from what Python has of that kind.
PyObject* make_class(nb::module_& module, const char* name, const char* about, PyObject* parent,
                     PyObject* natural) {
  const nb::object bases = natural == nullptr ? nb::make_tuple(nb::borrow(parent))
                                              : nb::make_tuple(nb::borrow(parent), nb::borrow(natural));
  nb::dict fields;
  fields["__module__"] = "fakequant";
  fields["__doc__"] = about;
  nb::object type = nb::borrow(reinterpret_cast<PyObject*>(&PyType_Type))(name, bases, fields);
  module.attr(name) = type;
  return type.release().ptr();
}

void raise_file(const FileError& error) {
  const nb::object exception = nb::borrow(classes[file])(error.what());
  exception.attr("path") = error.path();
  exception.attr("dataset") = error.dataset();
  PyErr_SetObject(classes[file], exception.ptr());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const FileError& error) {
    raise_file(error);
  } catch (const ArgumentError& error) {
    PyErr_SetString(classes[argument], error.what());
  } catch (const NumericError& error) {
    PyErr_SetString(classes[numeric], error.what());
  } catch (const BackendError& error) {
    PyErr_SetString(classes[backend], error.what());
  } catch (const SystemError& error) {
    PyErr_SetString(classes[system], error.what());
  } catch (const Error& error) {
    PyErr_SetString(classes[base], error.what());
  }
}

}  // namespace

void bind_errors(nb::module_& m) {
  classes[base] = make_class(m, "Error", "What all others derive from.", PyExc_Exception, nullptr);
  PyObject* error = classes[base];
  classes[argument] =
      make_class(m, "ArgumentError", "A value, shape, dtype, name or option that is not allowed.", error,
                 PyExc_ValueError);
  classes[file] =
      make_class(m, "FileError", "A file that is missing, damaged, foreign or newer: .path and .dataset.",
                 error, PyExc_OSError);
  classes[numeric] = make_class(m, "NumericError", "A value that arithmetic cannot go on with.", error,
                                PyExc_ArithmeticError);
  classes[backend] = make_class(m, "BackendError", "A library or device that failed, or is not there.", error,
                                PyExc_RuntimeError);
  classes[system] = make_class(m, "SystemError", "The operating system refused: memory, disk, threads.",
                               error, PyExc_OSError);
  nb::register_exception_translator(translate);
}

}  // namespace fq::python
