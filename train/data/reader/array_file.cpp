#include "fakequant/train/data/reader/array_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/detail/utf8.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kMostInMemory = std::int64_t{1} << 31;
constexpr std::int64_t kMostRow = std::int64_t{1} << 30;

template <class T>
T swapped(T value) {
  auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  std::ranges::reverse(bytes);
  return std::bit_cast<T>(bytes);
}

template <class From, class To>
void convert_each(const std::byte* from, std::byte* to, std::int64_t count, bool swap) {
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * std::int64_t(sizeof(From)), sizeof(From));
    if (swap) value = swapped(value);
    const To out = static_cast<To>(value);
    std::memcpy(to + i * std::int64_t(sizeof(To)), &out, sizeof(To));
  }
}

DType dtype_of_elements(const ElementType& type) {
  switch (type.kind) {
    case 'f':
      return type.bytes == 2 ? DType::f16 : type.bytes == 4 ? DType::f32 : DType::f64;
    case 'i':
      return type.bytes == 1   ? DType::i8
             : type.bytes == 2 ? DType::i16
             : type.bytes == 4 ? DType::i32
                               : DType::i64;
    case 'u':
      return type.bytes == 1 ? DType::u8 : type.bytes == 2 ? DType::i32 : DType::i64;
    default:
      return DType::u8;
  }
}

void append_utf8(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += char(c);
  } else if (c < 0x800) {
    text += {char(0xc0 | c >> 6), char(0x80 | (c & 0x3f))};
  } else if (c < 0x10000) {
    text += {char(0xe0 | c >> 12), char(0x80 | (c >> 6 & 0x3f)), char(0x80 | (c & 0x3f))};
  } else {
    text += {char(0xf0 | (c >> 18 & 7)), char(0x80 | (c >> 12 & 0x3f)), char(0x80 | (c >> 6 & 0x3f)),
             char(0x80 | (c & 0x3f))};
  }
}

std::string text_of(const std::byte* from, const ElementType& type) {
  std::string text;
  if (type.kind == 'S') {
    text.assign(reinterpret_cast<const char*>(from), std::size_t(type.bytes));
    text.resize(text.find_last_not_of('\0') + 1);
  }
  for (int i = 0; type.kind == 'U' && i + 4 <= type.bytes; i += 4) {
    std::uint32_t c;
    std::memcpy(&c, from + i, 4);
    if (type.big_endian) c = swapped(c);
    if (c != 0) append_utf8(text, char32_t(std::min(c, 0x10ffffu)));
  }
  return valid_utf8(text);
}

}  // namespace

ArrayFile::ArrayFile(std::unique_ptr<ByteStream> bytes, ElementType type, Shape shape, bool fortran_order)
    : bytes_(std::move(bytes)),
      place_(bytes_->place()),
      type_(type),
      shape_(std::move(shape)),
      dtype_(dtype_of_elements(type)),
      fortran_order_(fortran_order && shape_.size() > 1) {
  if (shape_.empty()) bytes_->fail("holds one number: give an array [N, ..]");
  constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
  std::int64_t elements = 1;
  for (const auto size : shape_) {
    if (size < 0 || size > kMostElements || (size > 0 && elements > kMostElements / size))
      bytes_->fail(fmt::format("claims the shape {}: it is damaged", to_string(shape_)));
    elements *= std::max<std::int64_t>(size, 1);
  }
  if (std::ranges::find(shape_, 0) != shape_.end())
    bytes_->fail(fmt::format("has the shape {}: there is nothing in it", to_string(shape_)));
  if (elements > bytes_->at_most() / type_.bytes)
    bytes_->fail(
        fmt::format("claims the shape {}, but its file is too short for it: it is truncated or damaged",
                    to_string(shape_)));
  row_elements_ = elements / shape_[0];
  if (row_elements_ > kMostRow / type_.bytes)
    bytes_->fail(fmt::format("has rows of {} elements: at most 1 GiB a row", row_elements_));
}

void ArrayFile::convert(const std::byte* from, std::byte* to, std::int64_t count) const {
  const bool swap = type_.big_endian;
  switch (type_.kind == 'u' && type_.bytes > 1 ? type_.bytes : 0) {
    case 2:
      return convert_each<std::uint16_t, std::int32_t>(from, to, count, swap);
    case 4:
      return convert_each<std::uint32_t, std::int64_t>(from, to, count, swap);
    case 8:
      return convert_each<std::uint64_t, std::int64_t>(from, to, count, swap);
    default:
      break;
  }
  visit_dtype(dtype_, "dataset", [&]<class T>(T) { convert_each<T, T>(from, to, count, swap); });
}

/// In Fortran order the rows lie across the whole array: it is read into memory, in pieces, so that no more
/// is taken than there is.
void ArrayFile::take_rows_of_columns() {
  const std::int64_t element = type_.bytes, bytes = shape_[0] * row_elements_ * element;
  if (bytes > kMostInMemory)
    bytes_->fail(
        fmt::format("is an array of {} bytes in Fortran order, at most {} are read: save it by "
                    "numpy.ascontiguousarray(x)",
                    bytes, kMostInMemory));
  constexpr std::int64_t kPiece = 16 << 20;
  for (std::int64_t at = 0; at < bytes; at += kPiece) {
    const auto part = std::size_t(std::min(kPiece, bytes - at));
    all_.resize(std::size_t(at) + part);
    bytes_->read(all_.data() + at, part);
  }
}

void ArrayFile::next_row(void* to) {
  const std::int64_t element = type_.bytes;
  row_.resize(std::size_t(row_elements_ * element));
  if (!fortran_order_) {
    bytes_->read(row_.data(), row_.size());
    if (std::byte behind; ++rows_read_ == shape_[0])
      (void)bytes_->read_some(&behind, 1);  // checksums are there
    return convert(row_.data(), static_cast<std::byte*>(to), row_elements_);
  }
  if (all_.empty()) take_rows_of_columns();
  Shape index(shape_.size(), 0);
  for (std::int64_t i = 0; i < row_elements_; ++i) {
    std::int64_t from = 0;
    for (std::size_t axis = shape_.size(); axis-- > 1;) from = from * shape_[axis] + index[axis];
    from = from * shape_[0] + rows_read_;
    std::memcpy(row_.data() + i * element, all_.data() + from * element, std::size_t(element));
    for (std::size_t axis = shape_.size(); axis-- > 1;) {
      if (++index[axis] < shape_[axis]) break;
      index[axis] = 0;
    }
  }
  ++rows_read_;
  convert(row_.data(), static_cast<std::byte*>(to), row_elements_);
}

Tensor ArrayFile::read_all() {
  const std::int64_t row = row_elements_ * bit_width(dtype_) / 8;
  if (shape_[0] > kMostInMemory / row)
    bytes_->fail(fmt::format("has the shape {}: labels of at most {} bytes are read", to_string(shape_),
                             kMostInMemory));
  std::vector<std::byte> all, next(static_cast<std::size_t>(row));
  for (std::int64_t i = 0; i < shape_[0]; ++i) {
    next_row(next.data());
    all.insert(all.end(), next.begin(), next.end());
  }
  Tensor out = Tensor::empty(shape_, dtype_);
  std::memcpy(out.mutable_raw(), all.data(), all.size());
  return out;
}

std::vector<std::string> ArrayFile::texts() {
  std::vector<std::string> out;
  row_.resize(std::size_t(type_.bytes));
  for (std::int64_t i = 0; i < shape_[0] * row_elements_; ++i) {
    bytes_->read(row_.data(), row_.size());
    out.push_back(text_of(row_.data(), type_));
  }
  return out;
}

}  // namespace fq::detail
