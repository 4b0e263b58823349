#include "given_array.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <nanobind/ndarray.h>

#include "array.h"
#include "exchange.h"
#include "kinds.h"
#include "streams.h"

namespace fq::python {
namespace {

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

}  // namespace

nb::object array_of(const Tensor& tensor, bool torch, nb::handle like) {
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

namespace {

/// The bytes of 8-bit elements, over the same memory.
Tensor as_bytes(const Tensor& tensor) {
  const Tensor rows = tensor.to(Layout::row_major);
  return Tensor::borrow(
      const_cast<void*>(rows.raw()), rows.shape(), DType::u8, [rows] {}, rows.device());
}

/// A byte, 0 or 1, for each bit, on the device of the mask.
Tensor as_flags(const Tensor& mask) {
  const Tensor host = mask.to(Device::cpu()).to(Layout::row_major);
  Tensor out = Tensor::empty(host.shape(), DType::u8);
  const auto* bits = static_cast<const std::uint8_t*>(host.raw());
  auto* flags = out.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < out.numel(); ++i) flags[i] = (bits[i / 8] >> (i % 8)) & 1;
  return out.to(mask.device());
}

/// torch's name of an 8-bit float type that this torch has; null for others.
const char* torch_float8(DType dtype) {
  const char* name = dtype == DType::f8_e4m3   ? "float8_e4m3fn"
                     : dtype == DType::f8_e5m2 ? "float8_e5m2"
                     : dtype == DType::f8_e8m0 ? "float8_e8m0fnu"
                                               : nullptr;
  return name != nullptr && nb::hasattr(nb::module_::import_("torch"), name) ? name : nullptr;
}

}  // namespace

nb::object Call::give(const Tensor& tensor) const {
  if (!tensor.defined()) return nb::none();
  const bool torch = is_torch(like);
  const bool own = like.is_valid() && nb::isinstance<Tensor>(like);
  if (tensor.dtype() == DType::u1 && !own && (torch || tensor.device().is_cpu())) {
    const nb::object flags = array_of(as_flags(tensor), torch, like);
    return torch ? flags.attr("view")(nb::module_::import_("torch").attr("bool"))
                 : flags.attr("view")("bool");
  }
  if (const char* name = torch ? torch_float8(tensor.dtype()) : nullptr)
    return array_of(as_bytes(tensor), true, like).attr("view")(nb::module_::import_("torch").attr(name));
  const bool known = !is_storage_only(tensor.dtype()) && (torch || tensor.dtype() != DType::bf16);
  if (!known || (!torch && !tensor.device().is_cpu()) || own) return nb::cast(tensor);
  return array_of(tensor, torch, like);
}

}  // namespace fq::python
