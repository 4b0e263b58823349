#include "fakequant/core/io/detail/hdf5_tree.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/core/io/detail/state_header.h"

namespace fq::detail {
namespace {

/// Reads structures of the file. Addresses are relative to the end of the fakequant header.
class StructureReader {
 public:
  explicit StructureReader(const FileReader& file) : file_(file) {}

  /// Throws FileError for bytes outside of the file, and if all reads together exceed four times the file
  /// size, because structures then overlap.
  [[nodiscard]] std::string bytes(std::int64_t at, std::int64_t count);
  /// Reads a little-endian number of `count` bytes; negative above 2^63. Throws FileError if `text` ends too
  /// early.
  [[nodiscard]] std::int64_t number(std::string_view text, std::int64_t at, int count) const;
  /// Throws FileError that names the file, and the object unless `name` is empty.
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;

 private:
  const FileReader& file_;
  std::int64_t read_ = 0;
};

std::string StructureReader::bytes(std::int64_t at, std::int64_t count) {
  const std::int64_t room = file_.size() - kHeaderBytes;
  if (at < 0 || at > room || count < 0 || count > room - at)
    refuse("", "has a structure outside of the file");
  if ((read_ += count) > 4 * file_.size()) refuse("", "has overlapping structures");
  std::string out(static_cast<std::size_t>(count), '\0');
  file_.read(kHeaderBytes + at, out.data(), out.size());
  return out;
}

std::int64_t StructureReader::number(std::string_view text, std::int64_t at, int count) const {
  if (at + count > static_cast<std::int64_t>(text.size())) refuse("", "has a structure that ends too early");
  std::uint64_t value = 0;
  for (int i = count; i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(text[static_cast<std::size_t>(at + i)]);
  return static_cast<std::int64_t>(value);
}

void StructureReader::refuse(const std::string& name, const std::string& why) const {
  throw FileError(file_.path(), name,
                  fmt::format("[load_state] {}{}{} {}", file_.path(), name.empty() ? "" : ":", name, why));
}

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
    // Object header version 1 (HDF5 file format, section IV.A.1.a), which HDF5 writes by default. Byte 8 has
    // the size of the first block.
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
      // A message: type (2 bytes), size (2), flags and padding (4), then its text.
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

  /// Reads an attribute; only texts of fixed length are supported.
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

/// Reads the header at `at`; errors name `name`. Throws FileError for headers of other versions, in too
/// many pieces, with links, and for datasets that are not stored in one piece.
TreeObject read_object_header(StructureReader& from, std::int64_t at, const std::string& name) {
  return ObjectHeader(from, name).read(at);
}

constexpr int kDeepestGroup = 64, kDeepestNode = 16;
constexpr std::string_view kSuperblock("\x89HDF\r\n\x1a\n\0", 9);

class Hdf5Tree {
 public:
  explicit Hdf5Tree(const FileReader& file) : from_(file) {}

  std::map<std::string, TreeObject> read() {
    const std::string block = from_.bytes(0, 96);
    if (!block.starts_with(kSuperblock) || block[13] != 8 || block[14] != 8 ||
        from_.number(block, 24, 8) != kHeaderBytes)
      from_.refuse("", "is not an HDF5 file as fakequant wrote it");
    // Bytes 56 to 95 are the symbol table entry of the root group, with its object header address at 64.
    group(object(from_.number(block, 64, 8), ""), "", 0);
    return std::move(found_);
  }

 private:
  TreeObject object(std::int64_t at, const std::string& name) {
    // Hard links could make a cycle or let one dataset claim its bytes many times.
    if (!seen_.insert(at).second) from_.refuse(name, "has a second name");
    return read_object_header(from_, at, name);
  }

  void group(const TreeObject& object, const std::string& prefix, int depth) {
    if (!object.nodes) from_.refuse(prefix, "is neither a group nor a dataset");
    if (depth > kDeepestGroup)
      from_.refuse(prefix, fmt::format("is more than {} groups deep", kDeepestGroup));
    const std::string heap = from_.bytes(*object.heap, 32);
    if (!heap.starts_with("HEAP")) from_.refuse(prefix, "has no names");
    node(*object.nodes, from_.bytes(from_.number(heap, 24, 8), from_.number(heap, 8, 8)), prefix, depth, 0);
  }

  void node(std::int64_t at, const std::string& names, const std::string& prefix, int depth, int level) {
    if (level > kDeepestNode || !seen_.insert(at).second)
      from_.refuse(prefix, "has a circular list of names");
    const std::string head = from_.bytes(at, 24);
    if (head.starts_with("SNOD")) return entries(at, from_.number(head, 6, 2), names, prefix, depth);
    if (!head.starts_with("TREE") || head[4] != 0) from_.refuse(prefix, "has no list of names");
    const std::int64_t count = from_.number(head, 6, 2);
    const std::string children = from_.bytes(at + 24, 8 + 16 * count);
    for (std::int64_t i = 0; i < count; ++i)
      node(from_.number(children, 8 + 16 * i, 8), names, prefix, depth, level + 1);
  }

  void entries(std::int64_t at, std::int64_t count, const std::string& names, const std::string& prefix,
               int depth) {
    // Symbol table entries of 40 bytes: offset of the name in the heap, address of the object header, cache
    // type (2: soft link).
    const std::string all = from_.bytes(at + 8, 40 * count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t from = from_.number(all, 40 * i, 8);
      if (from < 0 || from >= static_cast<std::int64_t>(names.size()))
        from_.refuse(prefix, "has a name outside of its heap");
      const std::string step = names.c_str() + from;
      const std::string name = prefix.empty() ? step : prefix + "/" + step;
      if (from_.number(all, 40 * i + 16, 4) == 2)
        from_.refuse(name, "is a soft or external link, which is not followed");
      TreeObject found = object(from_.number(all, 40 * i + 8, 8), name);
      if (found.elements)
        found_.emplace(name, std::move(found));
      else
        group(found, name, depth + 1);
    }
  }

  StructureReader from_;
  std::set<std::int64_t> seen_;
  std::map<std::string, TreeObject> found_;
};

}  // namespace

std::map<std::string, TreeObject> read_hdf5_tree(const FileReader& file) { return Hdf5Tree(file).read(); }

}  // namespace fq::detail
