#include "array.h"

#include <string>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fakequant/core/error.h"
#include "fakequant/reference/detail/torch_types.h"
#include "foreign_array.h"
#include "kinds.h"

namespace fq::python {
namespace {

std::string shape_text(const Shape& shape) {
  std::string out;
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return "[" + out + "]";
}

/// The 8-bit float type of a tensor of torch, which not every torch exchanges.
std::optional<DType> float8_of(nb::handle value) {
  if (!is_torch(value) || !nb::hasattr(value, "dtype")) return std::nullopt;
  const auto type = fq::detail::dtype_of_torch(text_of(nb::getattr(value, "dtype")));
  const bool is_float8 = type == DType::f8_e4m3 || type == DType::f8_e5m2 || type == DType::f8_e8m0;
  return is_float8 ? type : std::nullopt;
}

/// Returns a tensor of another 8-bit type over the same memory.
Tensor reinterpreted(const Tensor& bytes, DType type) {
  return Tensor::borrow(
      const_cast<void*>(bytes.raw()), bytes.shape(), type, [bytes] {}, bytes.device(), bytes.layout());
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
  if (!array || !array->type())
    if (const auto type = float8_of(value)) {
      if (array) array->release();
      const nb::object bytes = value.attr("view")(nb::module_::import_("torch").attr("uint8"));
      return reinterpreted(tensor(bytes, argument), *type);
    }
  if (!array)
    throw refuse(
        fmt::format("is a {}: give a numpy array, a torch tensor or what has __dlpack__", class_of(value)));
  const auto type = array->type();
  const auto layout = array->layout();
  const auto device = array->device();
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

std::variant<Amax, Tensor> Call::range(nb::handle value, std::string_view argument) const {
  if (!value.is_valid() || value.is_none() || is_number(value) || is_list(value))
    return amax(value, argument);
  Tensor found = tensor(value, argument);
  if (found.device().is_cuda()) return found;
  return Amax(found);
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

}  // namespace fq::python
