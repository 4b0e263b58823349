#include "foreign_array.h"

#include <algorithm>
#include <span>
#include <utility>

#include <nanobind/stl/string.h>

#include "exchange.h"
#include "interpreter_lock.h"

namespace fq::python {

std::string as_string(nb::handle value) { return nb::cast<std::string>(nb::str(value)); }

std::string class_name(nb::handle value) {
  const nb::handle type = value.type();
  const auto module = nb::cast<std::string>(nb::str(nb::getattr(type, "__module__")));
  const auto name = nb::cast<std::string>(nb::str(nb::getattr(type, "__qualname__")));
  return module == "builtins" ? name : module + "." + name;
}

bool is_torch(nb::handle value) {
  // The type of the first tensor, because reading the name of a class is slow.
  static PyTypeObject* torch = nullptr;
  if (!value.is_valid() || value.is_none()) return false;
  auto* type = Py_TYPE(value.ptr());
  if (type == torch) return true;
  const bool found = class_name(value).starts_with("torch.");
  if (found && torch == nullptr) {
    Py_INCREF(reinterpret_cast<PyObject*>(type));
    torch = type;
  }
  return found;
}

bool requires_gradient(nb::handle value) {
  // Interned once: the attribute is read for every tensor argument.
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  const nb::object found = nb::steal(PyObject_GetAttr(value.ptr(), name));
  if (!found.is_valid()) PyErr_Clear();
  return found.is_valid() && found.ptr() == Py_True;
}

// bool is a subclass of int in Python.
bool is_number(nb::handle value) {
  return PyFloat_Check(value.ptr()) != 0 ||
         (PyLong_Check(value.ptr()) != 0 && PyBool_Check(value.ptr()) == 0);
}

bool is_list(nb::handle value) { return PyList_Check(value.ptr()) != 0 || PyTuple_Check(value.ptr()) != 0; }

namespace {

using Array = nb::ndarray<nb::ro>;

/// Returns whether elements are contiguous with the axes in this order, the last one the fastest.
bool has_axis_order(const Foreign& array, std::span<const std::size_t> order) {
  std::int64_t step = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    // The stride of an axis of length 1 has no meaning and may be anything.
    if (array.shape[order[i]] != 1 && array.strides[order[i]] != step) return false;
    step *= array.shape[order[i]];
  }
  return true;
}

/// Reads an array by the C table of its type, which takes a tenth of the time of nanobind.
std::optional<Foreign> exchanged_array(const Exchange& exchange, nb::handle value) {
  ManagedTensor* managed = nullptr;
  if (exchange.from_object(value.ptr(), &managed) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const auto& view = managed->tensor;
  Foreign out{.data = static_cast<std::byte*>(view.data) + view.byte_offset,
              .shape = Shape(view.shape, view.shape + view.ndim),
              .strides = {},
              .dtype = view.dtype,
              .device_type = view.device.device_type,
              .device_id = view.device.device_id,
              .release = [managed] { managed->deleter(managed); }};
  if (view.strides != nullptr) out.strides.assign(view.strides, view.strides + view.ndim);
  return out;
}

std::optional<Foreign> python_array(nb::handle value) {
  // On the heap: the array may be released on a thread that must first acquire the lock.
  auto* owned = new Array;
  if (!nb::try_cast<Array>(nb::borrow(value), *owned)) {
    delete owned;
    return std::nullopt;
  }
  Foreign out{.data = const_cast<void*>(owned->data()),
              .shape = {},
              .strides = {},
              .dtype = owned->dtype(),
              .device_type = owned->device_type(),
              .device_id = owned->device_id(),
              .release = [owned] {
                // After finalization no Python object may be touched. The memory is lost with the process.
                if (!is_running()) return;
                const Locked gil;
                delete owned;
              }};
  for (std::size_t i = 0; i < owned->ndim(); ++i) {
    out.shape.push_back(static_cast<std::int64_t>(owned->shape(i)));
    out.strides.push_back(owned->stride(i));
  }
  return out;
}

}  // namespace

std::optional<DType> Foreign::type() const {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(dtype.code);
  if (dtype.lanes != 1) return std::nullopt;
  // The first argument of the call for floats is never chosen: 8 bits are excluded by the condition.
  const auto sized = [&](DType b8, DType b16, DType b32, DType b64) -> std::optional<DType> {
    return dtype.bits == 8 ? b8 : dtype.bits == 16 ? b16 : dtype.bits == 32 ? b32 : b64;
  };
  if (code == Code::Float && dtype.bits >= 16 && dtype.bits <= 64)
    return sized(DType::f16, DType::f16, DType::f32, DType::f64);
  if (code == Code::Int) return sized(DType::i8, DType::i16, DType::i32, DType::i64);
  if (code == Code::UInt && dtype.bits <= 16) return dtype.bits == 8 ? DType::u8 : DType::u16;
  if (code == Code::Bfloat && dtype.bits == 16) return DType::bf16;
  return std::nullopt;
}

std::optional<Layout> Foreign::layout() const {
  // Axes from the slowest to the fastest: row-major, and channels last, whose memory is NHWC.
  constexpr std::size_t kRows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                        kLast[] = {0, 2, 3, 1};
  const std::size_t rank = shape.size();
  // An array without elements has any layout.
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  if (empty || (rank <= std::size(kRows) && has_axis_order(*this, std::span(kRows, rank))))
    return Layout::row_major;
  if (rank == 4 && has_axis_order(*this, kLast)) return Layout::channels_last;
  return std::nullopt;
}

std::optional<Device> Foreign::device() const {
  // 3 is kDLCUDAHost: pinned memory, which the CPU can read.
  if (device_type == nb::device::cpu::value || device_type == 3) return Device::cpu();
  if (device_type == nb::device::cuda::value) return Device::cuda(device_id);
  return std::nullopt;
}

std::optional<Foreign> foreign_array(nb::handle value, bool fleeting) {
  nb::object own;
  if (!fleeting && is_torch(value) && nb::hasattr(value, "detach")) {
    own = value.attr("detach")();
    value = own;
  }
  if (const auto* exchange = find_exchange(value)) {
    auto found = exchanged_array(*exchange, value);
    // Strides may be missing in DLPack. nanobind's import then computes them.
    if (found && found->strides.size() == found->shape.size()) return found;
    if (found) found->release();
  }
  return python_array(value);
}

void put_in_order(Foreign& array, nb::handle value, Device device) {
  const auto stream = current_stream(value, device);
  // Both directions: the library starts after the caller's work, and the caller's memory is reused after the
  // library's.
  fq::detail::wait_for_stream(device, stream);
  array.release = [release = std::move(array.release), device, stream] {
    let_stream_wait_at_end(device, stream);
    release();
  };
}

}  // namespace fq::python
