#include "fakequant/train/data/reader/npy_header.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"

namespace fq::detail {
namespace {

constexpr std::size_t kMostHeader = 1 << 20, kMostAxes = 32;
constexpr int kMostTextBytes = 1 << 16;

/// The text of the header: a Python dict of three known keys.
class HeaderText {
 public:
  HeaderText(std::string text, ByteStream& bytes) : text_(std::move(text)), bytes_(bytes) {}

  /// What stands behind 'key':, without blanks before it.
  [[nodiscard]] std::string_view value(std::string_view key) const {
    for (const char quote : {'\'', '"'}) {
      const std::string quoted = quote + std::string(key) + quote;
      auto at = text_.find(quoted);
      if (at == text_.npos) continue;
      at = text_.find_first_not_of(' ', at + quoted.size());
      if (at == text_.npos || text_[at] != ':') break;
      at = text_.find_first_not_of(' ', at + 1);
      if (at != text_.npos) return std::string_view(text_).substr(at);
    }
    bytes_.fail(fmt::format("has a header without '{}': it is damaged", key));
  }

 private:
  std::string text_;
  ByteStream& bytes_;
};

Shape parse_shape(std::string_view text, ByteStream& bytes) {
  Shape shape;
  const auto bad = [&] { bytes.fail("has a header with a damaged shape"); };
  if (!text.starts_with('(')) bad();
  for (text.remove_prefix(1); !text.starts_with(')');) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || shape.size() == kMostAxes) bad();
    shape.push_back(size);
    text.remove_prefix(std::size_t(end - text.data()));
    if (text.starts_with('L')) text.remove_prefix(1);  // of Python 2
    while (text.starts_with(',') || text.starts_with(' ')) text.remove_prefix(1);
    if (text.empty()) bad();
  }
  return shape;
}

bool is_read(const ElementType& type) {
  switch (type.kind) {
    case 'b':
      return type.bytes == 1;
    case 'i':
    case 'u':
      return type.bytes == 1 || type.bytes == 2 || type.bytes == 4 || type.bytes == 8;
    case 'f':
      return type.bytes == 2 || type.bytes == 4 || type.bytes == 8;
    case 'S':
    case 'U':
      return type.bytes >= 1 && type.bytes <= kMostTextBytes;
    default:
      return false;
  }
}

ElementType parse_type(std::string_view text, ByteStream& bytes) {
  if (text.starts_with('['))
    bytes.fail("is an array of records: save one field, x[\"name\"], as an array of its own");
  if (text.size() < 4 || (text[0] != '\'' && text[0] != '"')) bytes.fail("has a header with a damaged type");
  const auto stop = text.find(text[0], 1);
  const std::string_view code = text.substr(1, stop == text.npos ? 0 : stop - 1);
  ElementType type;
  type.big_endian = code.starts_with('>');
  type.kind = code.size() > 1 ? code[1] : '?';
  if (type.kind == 'O')
    bytes.fail(
        "is an array of Python objects, which would have to be unpickled, and that runs whatever is in it: "
        "save x.astype(numpy.float32), or numpy.stack(list(x))");
  if (code.size() > 2) std::from_chars(code.data() + 2, code.data() + code.size(), type.bytes);
  if (type.kind == 'U') type.bytes = std::clamp(type.bytes, 0, kMostTextBytes) * 4;
  if (!is_read(type))
    bytes.fail(
        fmt::format("is an array of '{}': booleans, integers, floats of 16, 32 and 64 bits and, as "
                    "labels, text are read: save x.astype(numpy.float32)",
                    printable(code)));
  return type;
}

}  // namespace

NpyHeader read_npy_header(ByteStream& bytes) {
  std::array<unsigned char, 8> begin{};
  bytes.read(begin.data(), begin.size());
  if (std::string_view(reinterpret_cast<const char*>(begin.data()), 6) != "\x93NUMPY")
    bytes.fail("is not a NumPy array (.npy)");
  if (begin[6] < 1 || begin[6] > 3)
    bytes.fail(fmt::format("is of version {} of the format of NumPy arrays: 1, 2 and 3 are read", begin[6]));
  std::array<unsigned char, 4> size{};
  bytes.read(size.data(), begin[6] == 1 ? 2 : 4);
  const std::size_t length =
      size[0] | std::size_t(size[1]) << 8 | std::size_t(size[2]) << 16 | std::size_t(size[3]) << 24;
  if (length > kMostHeader) bytes.fail(fmt::format("claims a header of {} bytes: it is damaged", length));
  std::string text(length, '\0');
  bytes.read(text.data(), text.size());
  const HeaderText header(std::move(text), bytes);
  return {.type = parse_type(header.value("descr"), bytes),
          .shape = parse_shape(header.value("shape"), bytes),
          .fortran_order = header.value("fortran_order").starts_with("True")};
}

}  // namespace fq::detail
