#include "fakequant/train/data/detail/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <string_view>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/file_reader.h"

namespace fq::detail {
namespace {

constexpr std::size_t kMostAxes = 32, kMostHeader = 1 << 20;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 31;

/// Type of the elements in the file.
struct ElementType {
  char kind = 'f';  ///< b, i, u or f
  int bytes = 4;
  bool big_endian = false;
};

struct NpyHeader {
  ElementType type;
  Shape shape;
  bool fortran_order = false;
  std::int64_t data_begin = 0;
};

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw FileError(path, "", fmt::format("[npy] {} {}", path, why));
}

/// Returns the text after 'key':, without leading spaces.
///
/// The header is a Python dict: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }. numpy writes
/// fixed keys, so that a search for the quoted key is enough. No Python is evaluated.
std::string_view header_value(std::string_view header, const std::string& key, const std::string& path) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + key + quote;
    auto at = header.find(quoted);
    if (at == header.npos) continue;
    at = header.find_first_not_of(' ', at + quoted.size());
    if (at == header.npos || header[at] != ':') break;
    at = header.find_first_not_of(' ', at + 1);
    if (at != header.npos) return header.substr(at);
  }
  fail(path, fmt::format("has a header without '{}': it is damaged", key));
}

Shape parse_shape(std::string_view text, const std::string& path) {
  Shape shape;
  const auto check = [&](bool good) {
    if (!good) fail(path, "has a header with a damaged shape");
  };
  check(text.starts_with('('));
  for (text.remove_prefix(1); !text.starts_with(')'); check(!text.empty())) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    check(error == std::errc() && shape.size() < kMostAxes && size >= 0);
    shape.push_back(size);
    text.remove_prefix(std::size_t(end - text.data()));
    if (text.starts_with('L')) text.remove_prefix(1);  // written by Python 2
    while (text.starts_with(',') || text.starts_with(' ')) text.remove_prefix(1);
  }
  return shape;
}

bool is_supported(const ElementType& type) {
  const bool whole = type.bytes == 1 || type.bytes == 2 || type.bytes == 4 || type.bytes == 8;
  switch (type.kind) {
    case 'b':
      return type.bytes == 1;
    case 'f':
      return whole && type.bytes > 1;
    default:
      return whole && (type.kind == 'i' || type.kind == 'u');
  }
}

ElementType parse_type(std::string_view text, const std::string& path) {
  const char quote = text.empty() ? ' ' : text[0];
  if (quote == '[') fail(path, "is an array of records: save one field, x[\"name\"], as an array of its own");
  const auto stop = text.find(quote, 1);
  if ((quote != '\'' && quote != '"') || stop == text.npos) fail(path, "has a header with a damaged type");
  const std::string_view code = text.substr(1, stop - 1);
  ElementType type{.kind = code.size() > 1 ? code[1] : '?', .bytes = 0, .big_endian = code.starts_with('>')};
  if (type.kind == 'O')
    fail(path, "is an array of Python objects, which are never unpickled: save x.astype(numpy.float32)");
  if (code.size() > 2) std::from_chars(code.data() + 2, code.data() + code.size(), type.bytes);
  if (!is_supported(type))
    fail(path, fmt::format("is an array of '{}', allowed are booleans, integers and floats of 16, 32 and 64 "
                           "bits: save x.astype(numpy.float32)",
                           printable(code)));
  return type;
}

NpyHeader read_header(const FileReader& file) {
  const std::string& path = file.path();
  std::array<unsigned char, 12> begin{};
  if (file.size() < std::ssize(begin)) fail(path, "is no NumPy array (.npy): it is too short");
  file.read(0, begin.data(), begin.size());
  if (std::string_view(reinterpret_cast<const char*>(begin.data()), 6) != "\x93NUMPY") {
    const std::string kind = file_kind(path);
    fail(path, fmt::format("is {}, not a NumPy array (.npy)", kind.empty() ? "something else" : kind));
  }
  if (begin[6] < 1 || begin[6] > 3)
    fail(path, fmt::format("is of version {} of the format of NumPy arrays, allowed 1 to 3", begin[6]));
  // Version 1 has a header length of 2 bytes at offset 8, later versions of 4 bytes (numpy.lib.format).
  const std::size_t wide = begin[6] == 1 ? 0 : 0xffff;
  const std::size_t length =
      begin[8] | std::size_t(begin[9]) << 8 | (wide & begin[10]) << 16 | (wide & begin[11]) << 24;
  const std::int64_t at = begin[6] == 1 ? 10 : 12;
  // Lengths of the file are not trusted: a damaged one must not allocate without bound.
  if (length > kMostHeader || std::int64_t(length) > file.size() - at)
    fail(path, fmt::format("claims a header of {} bytes: it is damaged", length));
  std::string header(length, '\0');
  file.read(at, header.data(), header.size());
  return {.type = parse_type(header_value(header, "descr", path), path),
          .shape = parse_shape(header_value(header, "shape", path), path),
          .fortran_order = header_value(header, "fortran_order", path).starts_with("True"),
          .data_begin = at + std::int64_t(length)};
}

std::int64_t checked_elements(const NpyHeader& header, const FileReader& file) {
  const std::int64_t most = std::min(file.size() - header.data_begin, kMostBytes) / header.type.bytes;
  std::int64_t elements = 1;
  for (const auto size : header.shape) {
    // A division, because the product of sizes could overflow.
    if (size > 0 && elements > most / size)
      fail(file.path(),
           fmt::format("claims the shape {}, allowed are {} elements: it is truncated or too large",
                       to_string(header.shape), most));
    elements *= size;
  }
  if (elements == 0)
    fail(file.path(), fmt::format("has the shape {}: it has no elements", to_string(header.shape)));
  return elements;
}

/// Returns the elements in row-major order.
std::vector<std::byte> row_major_bytes(const std::vector<std::byte>& from, const Shape& shape, int bytes) {
  std::vector<std::byte> out(from.size());
  Shape index(shape.size(), 0);
  for (std::size_t at = 0; at < from.size(); at += std::size_t(bytes)) {
    // Offset in column-major order: axis 0 changes fastest.
    std::int64_t element = 0;
    for (std::size_t axis = shape.size(); axis-- > 0;) element = element * shape[axis] + index[axis];
    std::memcpy(out.data() + at, from.data() + element * bytes, std::size_t(bytes));
    // Next index in row-major order: a full axis wraps and increments the axis before it.
    for (std::size_t axis = shape.size(); axis-- > 0 && ++index[axis] == shape[axis];) index[axis] = 0;
  }
  return out;
}

// Unsigned integers become the next wider signed type, because DType has only u8.
DType element_dtype(const ElementType& type) {
  const bool narrow = type.bytes <= 2;
  switch (type.kind) {
    case 'f':
      return narrow ? DType::f16 : type.bytes == 4 ? DType::f32 : DType::f64;
    case 'i':
      return type.bytes == 1 ? DType::i8 : narrow ? DType::i16 : type.bytes == 4 ? DType::i32 : DType::i64;
    default:
      return type.bytes == 1 ? DType::u8 : narrow ? DType::i32 : DType::i64;
  }
}

template <class From, class To>
void convert_each(const std::vector<std::byte>& from, Tensor& to, bool swap) {
  auto* out = to.mutable_data<To>();
  for (std::size_t i = 0; i < from.size() / sizeof(From); ++i) {
    std::array<std::byte, sizeof(From)> bytes;
    // Elements have no alignment in the byte buffer, and big-endian files need a reversal.
    std::memcpy(bytes.data(), from.data() + i * sizeof(From), sizeof(From));
    if (swap) std::ranges::reverse(bytes);
    out[i] = static_cast<To>(std::bit_cast<From>(bytes));
  }
}

/// Throws FileError if uint64 values above 2^63 - 1 became negative.
void check_not_negative(const Tensor& values, const FileReader& file) {
  const auto* value = values.data<std::int64_t>();
  if (std::any_of(value, value + values.numel(), [](std::int64_t v) { return v < 0; }))
    throw FileError(file.path(), {}, fmt::format("[npy] {} has values above 2^63 - 1", file.path()));
}

/// Returns a tensor of native elements.
Tensor convert_elements(const std::vector<std::byte>& bytes, const ElementType& type, const Shape& shape,
                        const FileReader& file) {
  Tensor out = Tensor::empty(shape, element_dtype(type));
  switch (type.kind == 'u' && type.bytes > 1 ? type.bytes : 0) {
    case 2:
      convert_each<std::uint16_t, std::int32_t>(bytes, out, type.big_endian);
      break;
    case 4:
      convert_each<std::uint32_t, std::int64_t>(bytes, out, type.big_endian);
      break;
    case 8:
      convert_each<std::uint64_t, std::int64_t>(bytes, out, type.big_endian);
      check_not_negative(out, file);
      break;
    default:
      visit_dtype(out.dtype(), "npy", [&]<class T>(T) { convert_each<T, T>(bytes, out, type.big_endian); });
  }
  return out;
}

}  // namespace

Tensor read_npy(const std::string& path) {
  const FileReader file(path);
  const NpyHeader header = read_header(file);
  std::vector<std::byte> bytes(std::size_t(checked_elements(header, file) * header.type.bytes));
  file.read(header.data_begin, bytes.data(), bytes.size());
  if (header.fortran_order) bytes = row_major_bytes(bytes, header.shape, header.type.bytes);
  return convert_elements(bytes, header.type, header.shape, file);
}

}  // namespace fq::detail
