#include "array.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "exchange.h"
#include "fakequant/core/error.h"
#include "fakequant/core/tensor.h"
#include "fakequant/reference/detail/torch_types.h"
#include "foreign_array.h"

namespace fq::python {
namespace {

// The type codes of nanobind's DLPack have no packed types and no 8-bit floats.
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

/// Returns the bytes of 8-bit elements, over the same memory.
/// The deleter `[rows] {}` of the borrowed tensor holds a handle, which keeps the memory alive.
Tensor as_bytes(const Tensor& tensor) {
  const Tensor rows = tensor.to(Layout::row_major);
  return Tensor::borrow(
      const_cast<void*>(rows.raw()), rows.shape(), DType::u8, [rows] {}, rows.device());
}

/// Returns a byte, 0 or 1, for each bit, on the device of the mask.
Tensor as_flags(const Tensor& mask) {
  const Tensor host = mask.to(Device::cpu()).to(Layout::row_major);
  Tensor out = Tensor::empty(host.shape(), DType::u8);
  const auto* bits = static_cast<const std::uint8_t*>(host.raw());
  auto* flags = out.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < out.numel(); ++i) flags[i] = (bits[i / 8] >> (i % 8)) & 1;
  return out.to(mask.device());
}

/// Returns torch's name of an 8-bit float type, or null for other types and if this torch does not have it.
const char* torch_float8(DType dtype) {
  const char* name = dtype == DType::f8_e4m3   ? "float8_e4m3fn"
                     : dtype == DType::f8_e5m2 ? "float8_e5m2"
                     : dtype == DType::f8_e8m0 ? "float8_e8m0fnu"
                                               : nullptr;
  return name != nullptr && nb::hasattr(nb::module_::import_("torch"), name) ? name : nullptr;
}

std::string shape_text(const Shape& shape) {
  std::string out;
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return "[" + out + "]";
}

/// Returns the 8-bit float type of a torch tensor. Some versions of torch cannot export these types by
/// DLPack.
std::optional<DType> float8_type(nb::handle value) {
  if (!is_torch(value) || !nb::hasattr(value, "dtype")) return std::nullopt;
  const auto type = fq::detail::dtype_of_torch(as_string(nb::getattr(value, "dtype")));
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
  const auto argument_error = [&](const std::string& what) {
    return ArgumentError(fmt::format("[{}] {} {}", function, argument, what));
  };
  // From cheap to expensive: own tensors, a torch tensor that needs a gradient, then the array protocols.
  if (!value.is_valid() || value.is_none()) return {};
  if (nb::isinstance<Tensor>(value)) return nb::cast<Tensor>(value);
  if (is_torch(value) && requires_gradient(value))
    throw argument_error(
        "requires a gradient, and this function records none: use x.detach(), or use fakequant.torch");
  std::optional<Foreign> array;
  if (!is_number(value) && !is_list(value)) array = foreign_array(value, like.is_valid());
  // torch exports float8 as DLPack bytes or not at all, depending on its version. A view as uint8 always
  // works.
  if (!array || !array->type())
    if (const auto type = float8_type(value)) {
      if (array) array->release();
      const nb::object bytes = value.attr("view")(nb::module_::import_("torch").attr("uint8"));
      return reinterpreted(tensor(bytes, argument), *type);
    }
  if (!array)
    throw argument_error(fmt::format(
        "is a {}: use a numpy array, a torch tensor or an object with __dlpack__", class_name(value)));
  // `check` throws before the tensor owns the array. The catch block then releases it.
  const auto type = array->type();
  const auto layout = array->layout();
  const auto device = array->device();
  const auto check = [&] {
    if (!type)
      throw argument_error(
          fmt::format("has the element type {}: float16, bfloat16, float32, float64, int8 to int64, uint8 "
                      "and uint16 are allowed",
                      nb::hasattr(value, "dtype") ? as_string(nb::getattr(value, "dtype")) : "unknown"));
    if (!layout)
      throw argument_error(
          fmt::format("of shape {} is not contiguous: use numpy.ascontiguousarray(x) or x.contiguous()",
                      shape_text(array->shape)));
    if (!device) throw argument_error("is on an unsupported device: use an array on the CPU or a CUDA GPU");
    if (device->is_cuda() && cuda_device_count() == 0)
      throw argument_error(fmt::format("is on {}, and this build of fakequant has no usable GPU: use x.cpu()",
                                       to_string(*device)));
    if (reinterpret_cast<std::uintptr_t>(array->data) % (static_cast<unsigned>(bit_width(*type)) / 8) != 0)
      throw argument_error("is not aligned to its elements: use a copy");
  };
  try {
    check();
    // The stream of the caller may still compute the values.
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
      throw ArgumentError(fmt::format(
          "[{}] {} is a list with items that are not numbers: use numbers or an array", function, argument));
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

// Ranges of quantizers are set on the CPU.
Tensor Call::host_amax(nb::handle value, std::string_view argument) const {
  const Tensor found = amax(value, argument).tensor();
  return found.defined() ? found.to(Device::cpu()) : found;
}

Constant Call::constant(nb::handle value, std::string_view argument) const {
  if (!value.is_valid() || value.is_none()) return {};
  // A Python number has no element type. Constant converts it to the type of the other operand.
  if (is_number(value)) return Constant(nb::cast<double>(value));
  if (is_list(value)) {
    std::vector<double> numbers;
    if (!nb::try_cast<std::vector<double>>(nb::borrow(value), numbers))
      throw ArgumentError(fmt::format(
          "[{}] {} is a list with items that are not numbers: use numbers or an array", function, argument));
    return Constant(numbers);
  }
  return Constant(tensor(value, argument));
}

std::optional<DType> Call::dtype(nb::handle value, std::string_view argument) const {
  if (!value.is_valid() || value.is_none()) return std::nullopt;
  // Types of numpy are classes with a __name__. Types of torch are objects whose str() is "torch.int8".
  const std::string text =
      nb::hasattr(value, "__name__") ? as_string(nb::getattr(value, "__name__")) : as_string(value);
  if (const auto found = fq::detail::dtype_of_torch(text)) return found;
  try {
    return dtype_from_name(text);
  } catch (const ArgumentError&) {
    throw ArgumentError(
        fmt::format("[{}] {} is '{}', not an element type: use float32, float16, bfloat16, int8, uint8, "
                    "int4, float8_e4m3fn, .. or a short name: f32, i8, f8_e4m3, ..",
                    function, argument, text));
  }
}

NumBits Call::num_bits(nb::handle value, std::string_view argument) const {
  if (PyLong_Check(value.ptr()) != 0) return NumBits(nb::cast<int>(value));
  std::vector<int> parts;
  if (is_list(value) && nb::try_cast<std::vector<int>>(nb::borrow(value), parts) && parts.size() == 2)
    return NumBits(parts[0], parts[1]);
  throw ArgumentError(fmt::format("[{}] {} is {}: use a number of bits, or (exponent, mantissa)", function,
                                  argument, as_string(value)));
}

// The array borrows the memory. `Given` keeps the tensor until the array library releases it, and orders the
// streams.
nb::object to_array(const Tensor& tensor, bool torch, nb::handle like) {
  const fq::detail::KeptDevice device_scope;
  const Device device = tensor.device();
  const auto stream = current_stream(like, device);
  auto given = std::make_unique<Given>(tensor.to(Layout::row_major), stream);
  fq::detail::let_stream_wait(device, stream);
  const auto type = *dlpack_dtype(tensor.dtype());
  // The C table saves the Python calls of nanobind's export.
  if (const auto* exchange = torch ? find_exchange(like) : nullptr)
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

// The array type of the result follows the first argument (`like`): torch for torch, else numpy.
nb::object Call::give(const Tensor& tensor) const {
  if (!tensor.defined()) return nb::none();
  const bool torch = is_torch(like);
  // A fakequant.Tensor as input gives a fakequant.Tensor as result.
  const bool own = like.is_valid() && nb::isinstance<Tensor>(like);
  // Masks are bits. Array libraries get one bool per element.
  if (tensor.dtype() == DType::u1 && !own && (torch || tensor.device().is_cpu())) {
    const nb::object flags = to_array(as_flags(tensor), torch, like);
    return torch ? flags.attr("view")(nb::module_::import_("torch").attr("bool"))
                 : flags.attr("view")("bool");
  }
  if (const char* name = torch ? torch_float8(tensor.dtype()) : nullptr)
    return to_array(as_bytes(tensor), true, like).attr("view")(nb::module_::import_("torch").attr(name));
  const bool known = !is_storage_only(tensor.dtype()) && (torch || tensor.dtype() != DType::bf16);
  if (!known || (!torch && !tensor.device().is_cpu()) || own) return nb::cast(tensor);
  return to_array(tensor, torch, like);
}

}  // namespace fq::python
