#include "fakequant/core/io/detail/tree/object_header.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

constexpr int kMostPieces = 16;
constexpr std::int64_t kLongestText = 1024, kMostMessages = 256;

enum Message : std::uint64_t {
  kSpace = 1,
  kLink = 6,
  kLayout = 8,
  kAttribute = 12,
  kContinuation = 16,
  kSymbols = 17
};

class ObjectHeader {
 public:
  ObjectHeader(StructureReader& from, const std::string& name) : from_(from), name_(name) {}

  TreeObject read(std::int64_t at) {
    const std::string head = from_.bytes(at, 16);
    if (head[0] != 1) from_.refuse(name_, "has an object header of another version");
    TreeObject out;
    messages(out, at + 16, from_.number(head, 8, 4), 0);
    return out;
  }

 private:
  void messages(TreeObject& out, std::int64_t at, std::int64_t length, int blocks) {
    if (blocks > kMostPieces) from_.refuse(name_, "has a header in too many pieces");
    const std::string block = from_.bytes(at, std::min(length, std::int64_t{1} << 20));
    std::int64_t place = 0;
    for (std::int64_t count = 0; place + 8 <= static_cast<std::int64_t>(block.size()); ++count) {
      const std::int64_t size = from_.number(block, place + 2, 2);
      const std::string_view all = block;
      if (count > kMostMessages || place + 8 + size > static_cast<std::int64_t>(all.size()))
        from_.refuse(name_, "has a header that ends too early");
      const std::string_view text =
          all.substr(static_cast<std::size_t>(place + 8), static_cast<std::size_t>(size));
      if (from_.number(block, place, 2) == kContinuation)
        messages(out, from_.number(text, 0, 8), from_.number(text, 8, 8), blocks + 1);
      else
        message(out, static_cast<std::uint64_t>(from_.number(block, place, 2)), text);
      place += 8 + size;
    }
  }

  void message(TreeObject& out, std::uint64_t type, std::string_view text) {
    if (type == kSymbols) {
      out.nodes = from_.number(text, 0, 8);
      out.heap = from_.number(text, 8, 8);
    } else if (type == kSpace) {
      out.shape = shape(text);
    } else if (type == kLayout) {
      if (from_.number(text, 0, 1) != 3 || from_.number(text, 1, 1) != 1)
        from_.refuse(name_, "is not stored in one piece, as fakequant stores it");
      out.elements = from_.number(text, 2, 8);
    } else if (type == kAttribute) {
      attribute(out, text);
    } else if (type == kLink) {
      from_.refuse(name_, "has links, which are not followed");
    }
  }

  [[nodiscard]] Shape shape(std::string_view text) const {
    const std::int64_t version = from_.number(text, 0, 1), axes = from_.number(text, 1, 1);
    if (version != 1 || axes > 32) from_.refuse(name_, "has a shape of another version");
    Shape out;
    for (std::int64_t axis = 0; axis < axes; ++axis) out.push_back(from_.number(text, 8 + 8 * axis, 8));
    return out;
  }

  /// Texts of fixed length alone.
  void attribute(TreeObject& out, std::string_view text) const {
    if (from_.number(text, 0, 1) != 1) from_.refuse(name_, "has an attribute of another version");
    const std::int64_t type = 8 + padded(from_.number(text, 2, 2)),
                       space = type + padded(from_.number(text, 4, 2));
    const std::int64_t value = space + padded(from_.number(text, 6, 2)),
                       size = from_.number(text, type + 4, 4);
    const std::string key(text.substr(8, static_cast<std::size_t>(from_.number(text, 2, 2))));
    if ((from_.number(text, type, 1) & 15) != 3) return;
    if (size < 0 || size > kLongestText || value + size > static_cast<std::int64_t>(text.size()))
      from_.refuse(name_, fmt::format("has an attribute '{}' that is not a short text", key.c_str()));
    const std::string all(text.substr(static_cast<std::size_t>(value), static_cast<std::size_t>(size)));
    out.texts[key.c_str()] = all.c_str();
  }

  static std::int64_t padded(std::int64_t size) { return (size + 7) / 8 * 8; }

  StructureReader& from_;
  const std::string& name_;
};

}  // namespace

TreeObject read_object_header(StructureReader& from, std::int64_t at, const std::string& name) {
  return ObjectHeader(from, name).read(at);
}

}  // namespace fq::detail
