#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "array.h"
#include "fakequant/core/error.h"

namespace fq::python {
namespace {

// Tensors on the device meta have shapes only.
Tensor checked_host(const Tensor& tensor, const char* function) {
  if (tensor.device().is_meta())
    throw ArgumentError(fmt::format("[{}] the tensor is on the device meta and has no values", function));
  return tensor.to(Device::cpu());
}

/// Returns a copy of the stored bytes, one axis.
nb::object stored_bytes(const Tensor& tensor) {
  const Tensor host = checked_host(tensor, "Tensor.bytes").to(Layout::row_major);
  Tensor out = Tensor::empty({host.nbytes()}, DType::u8);
  // An empty tensor may have no memory, and memcpy requires valid pointers even for zero bytes.
  if (host.nbytes() > 0) std::memcpy(out.mutable_raw(), host.raw(), static_cast<std::size_t>(host.nbytes()));
  return to_array(out, false);
}

Tensor from_bytes(nb::handle bytes, nb::handle dtype, const std::vector<std::int64_t>& shape) {
  const Call call{"Tensor.from_bytes"};
  const Tensor source = call.host(bytes, "bytes");
  const auto type = call.dtype(dtype, "dtype");
  if (!source.defined() || !type) throw ArgumentError("[Tensor.from_bytes] bytes or dtype is None: use both");
  Tensor out = Tensor::empty(Shape(shape), *type);
  // Packed types have fewer bytes than elements.
  if (source.nbytes() != out.nbytes())
    throw ArgumentError(fmt::format("[Tensor.from_bytes] bytes has {} bytes, and {} requires {}",
                                    source.nbytes(), out.describe(), out.nbytes()));
  if (out.nbytes() > 0) std::memcpy(out.mutable_raw(), source.raw(), static_cast<std::size_t>(out.nbytes()));
  return out;
}

}  // namespace

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor",
                     "A dense tensor of any element type. Functions return it for types that numpy does not "
                     "have (bfloat16, 8-bit floats, packed codes). Functions accept it as an array.")
      .def_prop_ro(
          "shape",
          [](const Tensor& t) {
            return nb::tuple(nb::cast(std::vector<std::int64_t>(t.shape().begin(), t.shape().end())));
          },
          "Number of elements along each axis.")
      .def_prop_ro(
          "dtype", [](const Tensor& t) { return std::string(name(t.dtype())); },
          "Element type: \"f32\", \"bf16\", \"f8_e4m3\", ..")
      .def_prop_ro(
          "device", [](const Tensor& t) { return to_string(t.device()); }, "Device: \"cpu\", \"cuda:0\", ..")
      .def(
          "numpy",
          [](const Tensor& t) {
            const Tensor host = checked_host(t, "Tensor.numpy");
            if (is_storage_only(host.dtype()) || host.dtype() == DType::bf16)
              throw ArgumentError(
                  fmt::format("[Tensor.numpy] numpy has no type for {}: use bytes(), or to('float32') of a "
                              "bfloat16",
                              name(host.dtype())));
            // The array shares the memory with the tensor.
            return to_array(host, false);
          },
          "Returns a numpy array over the same memory. Raises ArgumentError for a type that numpy does not "
          "have.")
      .def("bytes", &stored_bytes,
           "Returns a copy of the stored bytes in row-major order, uint8. Packed types have the low bits "
           "first.")
      .def(
          "to",
          [](const Tensor& t, nb::handle dtype) {
            return t.to(Call{"Tensor.to"}.dtype(dtype, "dtype", t.dtype()));
          },
          nb::arg("dtype"), "Returns a tensor with converted elements, rounded half to even.")
      .def_static("from_bytes", &from_bytes, nb::arg("bytes"), nb::arg("dtype"), nb::arg("shape"),
                  "Returns a tensor with a copy of stored bytes. Raises ArgumentError for another number of "
                  "bytes than the shape and dtype require.")
      .def_static(
          "from_array", [](nb::handle array) { return Call{"Tensor.from_array"}.tensor(array, "array"); },
          nb::arg("array"), "Returns a tensor over the memory of an array.")
      .def("__reduce__",
           [](nb::object self) {
             // Pickles the stored bytes: no array library has all element types.
             const nb::object bytes = self.attr("bytes")();
             return nb::make_tuple(self.type().attr("from_bytes"),
                                   nb::make_tuple(bytes, self.attr("dtype"), self.attr("shape")));
           })
      .def("__repr__", [](const Tensor& t) { return "fakequant.Tensor(" + t.describe() + ")"; });
}

}  // namespace fq::python
