#include "kinds.h"

#include <nanobind/stl/string.h>

namespace fq::python {

std::string text_of(nb::handle value) { return nb::cast<std::string>(nb::str(value)); }

std::string class_of(nb::handle value) {
  const nb::handle type = value.type();
  const auto module = nb::cast<std::string>(nb::str(nb::getattr(type, "__module__")));
  const auto name = nb::cast<std::string>(nb::str(nb::getattr(type, "__qualname__")));
  return module == "builtins" ? name : module + "." + name;
}

bool is_torch(nb::handle value) {
  // Types by their names, read once.
  static PyTypeObject* torch = nullptr;
  if (!value.is_valid() || value.is_none()) return false;
  auto* type = Py_TYPE(value.ptr());
  if (type == torch) return true;
  const bool found = class_of(value).starts_with("torch.");
  if (found && torch == nullptr) {
    Py_INCREF(reinterpret_cast<PyObject*>(type));
    torch = type;
  }
  return found;
}

bool requires_gradient(nb::handle value) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  const nb::object found = nb::steal(PyObject_GetAttr(value.ptr(), name));
  if (!found.is_valid()) PyErr_Clear();
  return found.is_valid() && found.ptr() == Py_True;
}

bool is_number(nb::handle value) {
  return PyFloat_Check(value.ptr()) != 0 ||
         (PyLong_Check(value.ptr()) != 0 && PyBool_Check(value.ptr()) == 0);
}

bool is_list(nb::handle value) { return PyList_Check(value.ptr()) != 0 || PyTuple_Check(value.ptr()) != 0; }

}  // namespace fq::python
