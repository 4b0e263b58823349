#include "array.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "exchange.h"
#include "fakequant/core/error.h"
#include "fakequant/reference/detail/torch_types.h"
#include "streams.h"

namespace fq::python {
namespace {

std::string text_of(nb::handle value) { return nb::cast<std::string>(nb::str(value)); }

std::string class_of(nb::handle value) {
  const nb::handle type = value.type();
  const auto module = nb::cast<std::string>(nb::str(nb::getattr(type, "__module__")));
  const auto name = nb::cast<std::string>(nb::str(nb::getattr(type, "__qualname__")));
  return module == "builtins" ? name : module + "." + name;
}

/// Types by their names, read once.
bool is_torch(nb::handle value) {
  static PyTypeObject* torch = nullptr;
  if (!value.is_valid() || value.is_none()) return false;
  auto* type = Py_TYPE(value.ptr());
  if (type == torch) return true;
  const bool found = class_of(value).starts_with("torch.");
  if (found && torch == nullptr) {
    Py_INCREF(type);
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

std::optional<DType> dtype_of(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(type.code);
  if (type.lanes != 1) return std::nullopt;
  const auto sized = [&](DType b8, DType b16, DType b32, DType b64) -> std::optional<DType> {
    return type.bits == 8 ? b8 : type.bits == 16 ? b16 : type.bits == 32 ? b32 : b64;
  };
  if (code == Code::Float && type.bits >= 16 && type.bits <= 64)
    return sized(DType::f16, DType::f16, DType::f32, DType::f64);
  if (code == Code::Int) return sized(DType::i8, DType::i16, DType::i32, DType::i64);
  if (code == Code::UInt && type.bits <= 16) return type.bits == 8 ? DType::u8 : DType::u16;
  if (code == Code::Bfloat && type.bits == 16) return DType::bf16;
  return std::nullopt;
}

std::optional<nb::dlpack::dtype> dlpack_dtype(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto as = [&](Code code) {
    return nb::dlpack::dtype{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bit_width(dtype)), 1};
  };
  if (is_storage_only(dtype)) return std::nullopt;
  if (dtype == DType::bf16) return as(Code::Bfloat);
  if (is_floating(dtype)) return as(Code::Float);
  return as(dtype == DType::u8 || dtype == DType::u16 ? Code::UInt : Code::Int);
}

using Array = nb::ndarray<nb::ro>;

/// Somebody's array, and what lets go of it on any thread, also when the interpreter is gone.
struct Foreign {
  void* data = nullptr;
  Shape shape;
  std::vector<std::int64_t> strides;
  nb::dlpack::dtype dtype;
  std::int32_t device_type = 0, device_id = 0;
  std::function<void()> release;
};

std::string shape_text(const Shape& shape) {
  std::string out;
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return "[" + out + "]";
}

/// Elements side by side, the last of these axes the fastest.
bool lies_as(const Foreign& array, std::span<const std::size_t> order) {
  std::int64_t step = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    if (array.shape[order[i]] != 1 && array.strides[order[i]] != step) return false;
    step *= array.shape[order[i]];
  }
  return true;
}

std::optional<Layout> layout_of(const Foreign& array) {
  constexpr std::size_t kRows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                        kLast[] = {0, 2, 3, 1};
  const std::size_t rank = array.shape.size();
  const bool empty = std::ranges::find(array.shape, 0) != array.shape.end();
  if (empty || (rank <= std::size(kRows) && lies_as(array, std::span(kRows, rank)))) return Layout::row_major;
  if (rank == 4 && lies_as(array, kLast)) return Layout::channels_last;
  return std::nullopt;
}

std::optional<Device> device_of(const Foreign& array) {
  if (array.device_type == nb::device::cpu::value || array.device_type == 3) return Device::cpu();
  if (array.device_type == nb::device::cuda::value) return Device::cuda(array.device_id);
  return std::nullopt;
}

/// By the C table of its type, which takes a tenth of the time.
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
  auto* held = new Array;
  if (!nb::try_cast<Array>(nb::borrow(value), *held)) {
    delete held;
    return std::nullopt;
  }
  Foreign out{.data = const_cast<void*>(held->data()),
              .shape = {},
              .strides = {},
              .dtype = held->dtype(),
              .device_type = held->device_type(),
              .device_id = held->device_id(),
              .release = [held] {
                if (Py_IsInitialized() == 0) return;
                const nb::gil_scoped_acquire gil;
                delete held;
              }};
  for (std::size_t i = 0; i < held->ndim(); ++i) {
    out.shape.push_back(static_cast<std::int64_t>(held->shape(i)));
    out.strides.push_back(held->stride(i));
  }
  return out;
}

/// Nothing for what is no array. Unless it is `fleeting`, used only while the caller waits, the tensor of
/// torch is one of its own over the same memory: `x.data = ..` gives x other memory, whoever reads it.
std::optional<Foreign> foreign_array(nb::handle value, bool fleeting) {
  nb::object own;
  if (!fleeting && is_torch(value) && nb::hasattr(value, "detach")) {
    own = value.attr("detach")();
    value = own;
  }
  if (const auto* exchange = exchange_of(value)) {
    auto found = exchanged_array(*exchange, value);
    if (found && found->strides.size() == found->shape.size()) return found;
    if (found) found->release();
  }
  return python_array(value);
}

/// The library's work comes after that of the array's stream, and what the array's owner does once it is let
/// go of comes after the library's.
void put_in_order(Foreign& array, nb::handle value, Device device) {
  const auto stream = current_stream(value, device);
  fq::detail::wait_for_stream(device, stream);
  array.release = [release = std::move(array.release), device, stream] {
    let_stream_wait_at_end(device, stream);
    release();
  };
}

}  // namespace

Tensor Call::tensor(nb::handle value, std::string_view argument) const {
  const auto refuse = [&](const std::string& what) {
    return ArgumentError(fmt::format("[{}] {} {}", function, argument, what));
  };
  if (!value.is_valid() || value.is_none()) return {};
  if (nb::isinstance<Tensor>(value)) return nb::cast<Tensor>(value);
  if (is_torch(value) && requires_gradient(value))
    throw refuse("requires a gradient, which is not recorded here: give it detached, or use fakequant.torch");
  std::optional<Foreign> array;
  if (!is_number(value) && !is_list(value)) array = foreign_array(value, like.is_valid());
  if (!array)
    throw refuse(
        fmt::format("is a {}: give a numpy array, a torch tensor or what has __dlpack__", class_of(value)));
  const auto type = dtype_of(array->dtype);
  const auto layout = layout_of(*array);
  const auto device = device_of(*array);
  const auto check = [&] {
    if (!type)
      throw refuse(
          fmt::format("has the element type {}: float16, bfloat16, float32, float64, int8 to int64, uint8 "
                      "and uint16 are allowed",
                      nb::hasattr(value, "dtype") ? text_of(nb::getattr(value, "dtype")) : "unknown"));
    if (!layout)
      throw refuse(fmt::format(
          "of shape {} is not contiguous: give numpy.ascontiguousarray(..) or .contiguous() of it",
          shape_text(array->shape)));
    if (!device) throw refuse("lies on a device that is neither a CPU nor a CUDA GPU");
    if (device->is_cuda() && cuda_device_count() == 0)
      throw refuse(fmt::format("lies on {}, and this build of fakequant has no usable GPU: give .cpu() of it",
                               to_string(*device)));
    if (reinterpret_cast<std::uintptr_t>(array->data) % (static_cast<unsigned>(bit_width(*type)) / 8) != 0)
      throw refuse("is not aligned to its elements: give a copy of it");
  };
  try {
    check();
    if (device->is_cuda()) put_in_order(*array, value, *device);
  } catch (...) {
    array->release();
    throw;
  }
  return Tensor::borrow(array->data, array->shape, *type, std::move(array->release), *device, *layout);
}

Tensor Call::host(nb::handle value, std::string_view argument) const {
  const Tensor found = tensor(value, argument);
  return found.defined() ? found.to(Device::cpu()) : found;
}

Amax Call::amax(nb::handle value, std::string_view argument) const {
  if (!value.is_valid() || value.is_none()) return {};
  if (is_number(value)) return Amax(nb::cast<double>(value));
  if (is_list(value)) {
    std::vector<float> numbers;
    if (!nb::try_cast<std::vector<float>>(nb::borrow(value), numbers))
      throw ArgumentError(
          fmt::format("[{}] {} is a list of other than numbers: give an array", function, argument));
    return Amax(numbers);
  }
  return Amax(tensor(value, argument));
}

Tensor Call::host_amax(nb::handle value, std::string_view argument) const {
  const Tensor found = amax(value, argument).tensor();
  return found.defined() ? found.to(Device::cpu()) : found;
}

Constant Call::constant(nb::handle value, std::string_view argument) const {
  if (!value.is_valid() || value.is_none()) return {};
  if (is_number(value)) return Constant(nb::cast<double>(value));
  if (is_list(value)) {
    std::vector<double> numbers;
    if (!nb::try_cast<std::vector<double>>(nb::borrow(value), numbers))
      throw ArgumentError(
          fmt::format("[{}] {} is a list of other than numbers: give an array", function, argument));
    return Constant(numbers);
  }
  return Constant(tensor(value, argument));
}

std::optional<DType> Call::dtype(nb::handle value, std::string_view argument) const {
  if (!value.is_valid() || value.is_none()) return std::nullopt;
  const std::string text =
      nb::hasattr(value, "__name__") ? text_of(nb::getattr(value, "__name__")) : text_of(value);
  if (const auto found = fq::detail::dtype_of_torch(text)) return found;
  try {
    return dtype_from_name(text);
  } catch (const ArgumentError&) {
    throw ArgumentError(
        fmt::format("[{}] {} is '{}', which is no element type: float32, float16, bfloat16, int8, uint8, "
                    "int4, float8_e4m3fn, .. are, and their short names f32, i8, f8_e4m3, ..",
                    function, argument, text));
  }
}

NumBits Call::num_bits(nb::handle value, std::string_view argument) const {
  if (PyLong_Check(value.ptr()) != 0) return NumBits(nb::cast<int>(value));
  std::vector<int> parts;
  if (is_list(value) && nb::try_cast<std::vector<int>>(nb::borrow(value), parts) && parts.size() == 2)
    return NumBits(parts[0], parts[1]);
  throw ArgumentError(fmt::format("[{}] {} is {}: give a number of bits, or (exponent, mantissa)", function,
                                  argument, text_of(value)));
}

namespace {

nb::object array_of(const Tensor& tensor, bool torch, nb::handle like = {}) {
  const fq::detail::KeptDevice kept;
  const Device device = tensor.device();
  const auto stream = current_stream(like, device);
  auto given = std::make_unique<Given>(tensor.to(Layout::row_major), stream);
  fq::detail::let_stream_wait(device, stream);
  const auto type = *dlpack_dtype(tensor.dtype());
  if (const auto* exchange = torch ? exchange_of(like) : nullptr)
    return exchanged(*exchange, std::move(given), type);
  const Shape& sizes = tensor.shape();
  const std::vector<std::size_t> shape(sizes.begin(), sizes.end());
  void* data = given->tensor.mutable_raw();
  const nb::capsule owner(given.release(), [](void* p) noexcept { delete static_cast<Given*>(p); });
  const int where = device.is_cuda() ? nb::device::cuda::value : nb::device::cpu::value;
  if (torch)
    return nb::cast(nb::ndarray<nb::pytorch>(data, shape.size(), shape.data(), owner, nullptr, type, where,
                                             device.index));
  return nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner, nullptr, type));
}

Tensor checked_host(const Tensor& tensor, const char* function) {
  if (tensor.device().is_meta())
    throw ArgumentError(fmt::format("[{}] the tensor lies on meta and has no values", function));
  return tensor.to(Device::cpu());
}

/// The stored bytes, with the last axis as long as they are.
nb::object bytes_of(const Tensor& tensor) {
  const Tensor host = checked_host(tensor, "Tensor.bytes").to(Layout::row_major);
  Tensor out = Tensor::empty({host.nbytes()}, DType::u8);
  if (host.nbytes() > 0) std::memcpy(out.mutable_raw(), host.raw(), static_cast<std::size_t>(host.nbytes()));
  return array_of(out, false);
}

Tensor from_bytes(nb::handle bytes, nb::handle dtype, const std::vector<std::int64_t>& shape) {
  const Call call{"Tensor.from_bytes"};
  const Tensor source = call.host(bytes, "bytes");
  const auto type = call.dtype(dtype, "dtype");
  if (!source.defined() || !type)
    throw ArgumentError("[Tensor.from_bytes] bytes, dtype and shape must be given");
  Tensor out = Tensor::empty(Shape(shape), *type);
  if (source.nbytes() != out.nbytes())
    throw ArgumentError(fmt::format("[Tensor.from_bytes] bytes has {} bytes, {} takes {}", source.nbytes(),
                                    out.describe(), out.nbytes()));
  if (out.nbytes() > 0) std::memcpy(out.mutable_raw(), source.raw(), static_cast<std::size_t>(out.nbytes()));
  return out;
}

}  // namespace

nb::object Call::give(const Tensor& tensor) const {
  if (!tensor.defined()) return nb::none();
  const bool torch = is_torch(like);
  const bool known = !is_storage_only(tensor.dtype()) && (torch || tensor.dtype() != DType::bf16);
  if (!known || (!torch && !tensor.device().is_cpu()) || (like.is_valid() && nb::isinstance<Tensor>(like)))
    return nb::cast(tensor);
  return array_of(tensor, torch, like);
}

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor>(
      module, "Tensor",
      "A dense tensor of any element type; what functions give where numpy has no such type (bfloat16, 8-bit "
      "floats, packed codes). Every function takes it in place of an array.")
      .def_prop_ro(
          "shape",
          [](const Tensor& t) {
            return nb::tuple(nb::cast(std::vector<std::int64_t>(t.shape().begin(), t.shape().end())));
          })
      .def_prop_ro(
          "dtype", [](const Tensor& t) { return std::string(name(t.dtype())); },
          "\"f32\", \"bf16\", \"f8_e4m3\", ..")
      .def_prop_ro("device", [](const Tensor& t) { return to_string(t.device()); })
      .def(
          "numpy",
          [](const Tensor& t) {
            const Tensor host = checked_host(t, "Tensor.numpy");
            if (is_storage_only(host.dtype()) || host.dtype() == DType::bf16)
              throw ArgumentError(
                  fmt::format("[Tensor.numpy] numpy has no type for {}: use bytes(), or to('float32') of a "
                              "bfloat16",
                              name(host.dtype())));
            return array_of(host, false);
          },
          "The values as a numpy array over the same memory.")
      .def("bytes", &bytes_of,
           "A copy of the stored bytes in row-major order, uint8; packed types have their low bits first.")
      .def(
          "to",
          [](const Tensor& t, nb::handle dtype) {
            return t.to(Call{"Tensor.to"}.dtype(dtype, "dtype", t.dtype()));
          },
          nb::arg("dtype"), "Converts each element, half to even.")
      .def_static("from_bytes", &from_bytes, nb::arg("bytes"), nb::arg("dtype"), nb::arg("shape"),
                  "A tensor of those stored bytes, copied.")
      .def_static(
          "from_array", [](nb::handle array) { return Call{"Tensor.from_array"}.tensor(array, "array"); },
          nb::arg("array"), "A tensor over the array's own memory.")
      .def("__repr__", [](const Tensor& t) { return "fakequant.Tensor(" + t.describe() + ")"; });
}

}  // namespace fq::python
