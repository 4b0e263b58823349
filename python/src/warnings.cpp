#include "warnings.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include <nanobind/stl/string.h>

#include "bindings.h"
#include "fakequant/core/error.h"
#include "fakequant/core/log.h"

namespace fq::python {
namespace {

PyObject* category;  // never freed: a warning filter may use it until the process exits
std::atomic<int> open_calls{0};
std::atomic<bool> has_pending{false};
std::mutex mutex;
std::vector<std::string>& pending() {
  static auto* const messages = new std::vector<std::string>;  // threads may log until the process exits
  return *messages;
}

// Called by the interpreter on its main thread. An exception of a warning filter is raised there.
int issue_pending(void*) try {
  CallWarnings::tell();
  return 0;
} catch (nb::python_error& error) {
  error.restore();
  return -1;
}

// Py_AddPendingCall works on any thread, without the lock. It fails if its queue is full; the next call then
// issues the messages.
void schedule_issue() {
  if (Py_IsInitialized() != 0) Py_AddPendingCall(&issue_pending, nullptr);
}

/// Keeps a message until it is issued. Called from any thread, with or without the interpreter's lock, and
/// must not wait for the lock.
void keep(LogLevel level, std::string_view message) {
  if (level < LogLevel::warning) return;
  {
    const std::scoped_lock lock(mutex);
    // A message that repeats for every batch is issued once.
    if (std::ranges::find(pending(), message) == pending().end()) pending().emplace_back(message);
    has_pending = true;
  }
  // An open call issues its warnings itself, with its own line as their place.
  if (open_calls == 0) schedule_issue();
}

/// Returns the level of the innermost frame outside of the package, as warnings.warn counts levels.
Py_ssize_t frames_of_package() {
  const auto own = nb::module_::import_("fakequant").attr("__path__")[0];
  nb::object frame = nb::module_::import_("sys").attr("_getframe")(0);
  Py_ssize_t level = 1;
  for (; !frame.is_none(); frame = frame.attr("f_back"), ++level)
    if (!nb::cast<bool>(frame.attr("f_code").attr("co_filename").attr("startswith")(own))) return level;
  return level;
}

}  // namespace

void warn(const std::string& message) {
  if (!message.empty() && PyErr_WarnEx(category, message.c_str(), frames_of_package()) != 0)
    throw nb::python_error();
}

CallWarnings::CallWarnings() { ++open_calls; }

CallWarnings::~CallWarnings() {
  // The call ended with an exception before `tell`.
  if (--open_calls == 0 && has_pending) schedule_issue();
}

void CallWarnings::tell() {
  if (!has_pending.exchange(false)) return;
  std::vector<std::string> messages;
  {
    const std::scoped_lock lock(mutex);
    // Warnings run Python code, which may log again, so the mutex is released first.
    messages.swap(pending());
  }
  for (const auto& message : messages) warn(message);
}

void bind_warnings(nb::module_& m) {
  nb::dict fields;
  fields["__module__"] = "fakequant";
  fields["__doc__"] = "Unexpected behaviour that is not an error.";
  nb::object type = nb::borrow(reinterpret_cast<PyObject*>(&PyType_Type))(
      "FakequantWarning", nb::make_tuple(nb::borrow(PyExc_UserWarning)), fields);
  m.attr("FakequantWarning") = type;
  // UserWarning as base: shown by default, once for each line.
  category = type.release().ptr();
  set_log_callback(keep);
}

namespace {

enum Class { base, argument, file, numeric, backend, system, count };
PyObject* classes[count];  // never freed: exception translators are never removed

/// Returns a new exception class of the module, derived from `parent` and from a built-in class if given.
/// With a built-in base, for example ValueError, callers can catch the errors without this module.
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

// Derived classes first, because all of them are also Error.
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
  classes[base] = make_class(m, "Error", "Base class of all errors of fakequant.", PyExc_Exception, nullptr);
  PyObject* error = classes[base];
  classes[argument] =
      make_class(m, "ArgumentError", "A value, shape, dtype, name or option that is not allowed.", error,
                 PyExc_ValueError);
  classes[file] = make_class(
      m, "FileError",
      "A file that is missing, damaged, of another kind or from a newer version: .path and .dataset.", error,
      PyExc_OSError);
  classes[numeric] =
      make_class(m, "NumericError", "A value that the arithmetic does not allow, for example NaN.", error,
                 PyExc_ArithmeticError);
  classes[backend] = make_class(m, "BackendError", "A library or device that failed or is missing.", error,
                                PyExc_RuntimeError);
  classes[system] = make_class(m, "SystemError", "A failure of the operating system: memory, disk, threads.",
                               error, PyExc_OSError);
  nb::register_exception_translator(translate);
}

}  // namespace fq::python
