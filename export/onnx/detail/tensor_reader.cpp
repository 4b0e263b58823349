#include "fakequant/export/onnx/detail/tensor_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include <onnx/onnx_pb.h>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/export/onnx/detail/element_type.h"

namespace fq::detail {
namespace {

constexpr int kMostAxes = 16;

}  // namespace

void OnnxTensorReader::fail(const std::string& place, const std::string& why) const {
  throw FileError(path_, place,
                  fmt::format("[load_onnx] {}{}{}: {}", path_, place.empty() ? "" : ", ", place, why));
}

Shape OnnxTensorReader::tensor_shape(const onnx::TensorProto& value, const std::string& place) const {
  if (value.dims_size() > kMostAxes) fail(place, fmt::format("it has {} axes", value.dims_size()));
  std::int64_t count = 1;
  for (const auto size : value.dims()) {
    // Compares before the multiplication, so that the product cannot overflow.
    if (size < 0 || (size > 0 && count > (std::int64_t{1} << 40) / size)) fail(place, "its shape is absurd");
    count *= size;
  }
  return {value.dims().begin(), value.dims().end()};
}

// Converts u32 and u64, which have no DType, to i64. ONNX stores both in the typed field uint64_data.
Tensor OnnxTensorReader::wide_unsigned(const onnx::TensorProto& value, const std::string& place) const {
  const Shape shape = tensor_shape(value, place);
  const std::size_t size = value.data_type() == onnx::TensorProto::UINT32 ? 4 : 8;
  const auto count = static_cast<std::size_t>(numel(shape));
  if (value.data_location() == onnx::TensorProto::EXTERNAL)
    fail(place, "unsigned numbers in external data are unsupported: convert them to int64");
  const bool raw = value.has_raw_data();
  if (raw ? value.raw_data().size() != count * size
          : static_cast<std::size_t>(value.uint64_data_size()) != count)
    fail(place, fmt::format("its data do not have {} numbers", count));
  Tensor out = Tensor::empty(shape, DType::i64);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t number = raw ? 0 : value.uint64_data(static_cast<int>(i));
    if (raw) std::memcpy(&number, value.raw_data().data() + i * size, size);
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail(place, fmt::format("it has {}: unsigned numbers below 2^63 are supported", number));
    out.mutable_data<std::int64_t>()[i] = static_cast<std::int64_t>(number);
  }
  return out;
}

Tensor OnnxTensorReader::read(const onnx::TensorProto& value, const std::string& place) const {
  if (value.data_type() == onnx::TensorProto::UINT32 || value.data_type() == onnx::TensorProto::UINT64)
    return wide_unsigned(value, place);
  const auto dtype = dtype_of_onnx(value.data_type());
  if (!dtype) fail(place, fmt::format("its element type {} is not supported", value.data_type()));
  const Shape shape = tensor_shape(value, place);
  const auto bytes = static_cast<std::size_t>(byte_size(*dtype, numel(shape)));
  if (value.data_location() == onnx::TensorProto::EXTERNAL)
    return external(value, shape, *dtype, bytes, place);
  if (!value.has_raw_data()) return typed(value, shape, *dtype, place);
  if (value.raw_data().size() != bytes)
    fail(place, fmt::format("{} of {} takes {} bytes, the file has {}", to_string(shape), name(*dtype), bytes,
                            value.raw_data().size()));
  Tensor out = Tensor::empty(shape, *dtype);
  // Raw data is little-endian, like the host.
  if (bytes > 0) std::memcpy(out.mutable_raw(), value.raw_data().data(), bytes);
  return out;
}

/// Reads a typed field. int32_data also holds smaller integers and the bits of 16-bit and 8-bit floats.
Tensor OnnxTensorReader::typed(const onnx::TensorProto& value, const Shape& shape, DType dtype,
                               const std::string& place) const {
  switch (dtype) {
    case DType::f32:
      return numbers<float>(value.float_data(), shape, dtype, place);
    case DType::f64:
      return numbers<double>(value.double_data(), shape, dtype, place);
    case DType::i64:
      return numbers<std::int64_t>(value.int64_data(), shape, dtype, place);
    case DType::i32:
      return numbers<std::int32_t>(value.int32_data(), shape, dtype, place);
    case DType::i16:
    case DType::u16:
    case DType::f16:
    case DType::bf16:
      return numbers<std::uint16_t>(value.int32_data(), shape, dtype, place);
    default:
      return numbers<std::uint8_t>(value.int32_data(), shape, dtype, place);
  }
}

template <class T, class Field>
Tensor OnnxTensorReader::numbers(const Field& field, const Shape& shape, DType dtype,
                                 const std::string& place) const {
  // An entry of a 4-bit type holds a byte with two codes.
  const auto count = byte_size(dtype, numel(shape)) / static_cast<std::int64_t>(sizeof(T));
  if (field.size() != count)
    fail(place,
         fmt::format("{} of {} has {} numbers in the file", to_string(shape), name(dtype), field.size()));
  Tensor out = Tensor::empty(shape, dtype);
  std::int64_t at = 0;
  for (const auto number : field) {
    const T element = static_cast<T>(number);
    std::memcpy(static_cast<std::byte*>(out.mutable_raw()) + at, &element, sizeof(T));
    at += static_cast<std::int64_t>(sizeof(T));
  }
  return out;
}

Tensor OnnxTensorReader::external(const onnx::TensorProto& value, const Shape& shape, DType dtype,
                                  std::size_t bytes, const std::string& place) const {
  std::string location;
  std::int64_t offset = 0, length = static_cast<std::int64_t>(bytes);
  for (const auto& entry : value.external_data()) {
    if (entry.key() == "location")
      location = entry.value();
    else if (entry.key() == "offset")
      offset = parse_count(entry.value(), place);
    else if (entry.key() == "length")
      length = parse_count(entry.value(), place);
    else if (entry.key() != "checksum")
      fail(place, "its external data has '" + entry.key() + "', which is unknown");
  }
  // Offset and length are untrusted: memory is allocated only after the comparison with the size of the file.
  const FileReader file(external_path(location, place));
  if (static_cast<std::size_t>(length) != bytes || offset > file.size() || length > file.size() - offset)
    fail(place, fmt::format("{} bytes at {} of {} are not a {} of {}", length, offset, location,
                            to_string(shape), name(dtype)));
  Tensor out = Tensor::empty(shape, dtype);
  file.read(offset, out.mutable_raw(), bytes);
  return out;
}

std::int64_t OnnxTensorReader::parse_count(const std::string& text, const std::string& place) const {
  // 18 digits fit int64.
  const bool digits =
      !text.empty() && text.size() <= 18 && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) fail(place, "offset or length of its external data is '" + text + "', not a number");
  return std::stoll(text);
}

std::string OnnxTensorReader::external_path(const std::string& location, const std::string& place) const {
  namespace fs = std::filesystem;
  // The file system would cut a path at a NUL.
  if (location.find('\0') != std::string::npos)
    fail(place, "the name of its external data has a NUL: '" + location.substr(0, location.find('\0')) + "'");
  std::error_code error;
  // Both paths are resolved, so neither ".." nor a symbolic link can lead out of the folder.
  const fs::path folder = fs::weakly_canonical(fs::absolute(path_, error).parent_path(), error);
  const fs::path file = fs::weakly_canonical(folder / location, error);
  const auto [end, ignored] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  if (error || location.empty() || fs::path(location).is_absolute() || end != folder.end())
    fail(place, "its external data '" + location + "' is outside of the model's folder");
  return file.string();
}

}  // namespace fq::detail
