#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/core/io/detail/file_kind.h"
#include "fakequant/train/data/reader/array_file.h"
#include "fakequant/train/data/reader/npy_header.h"
#include "fakequant/train/data/reader/zip_archive.h"

namespace fq::detail {
namespace {

constexpr std::string_view kEnding = ".npy";

bool is_zip(const std::string& path) {
  const FileReader file(path);
  std::array<char, 4> begin{};
  if (file.size() >= 22) file.read(0, begin.data(), begin.size());
  return std::string_view(begin.data(), 2) == "PK";
}

ArrayFile open_member(const std::string& path, const std::string& key) {
  const ZipArchive archive(path);
  for (const auto& member : archive.members())
    if (member.name == key || member.name == key + std::string(kEnding))
      return open_npy(archive.open(member));
  const auto keys = npz_keys(path);
  FQ_CHECK(false, "dataset", "{} has no array '{}'{}", path, key, did_you_mean(key, keys));
  std::abort();
}

/// Of a code of IDX files.
ElementType idx_type(unsigned char code, ByteStream& bytes) {
  switch (code) {
    case 0x08:
      return {'u', 1, true};
    case 0x09:
      return {'i', 1, true};
    case 0x0b:
      return {'i', 2, true};
    case 0x0c:
      return {'i', 4, true};
    case 0x0d:
      return {'f', 4, true};
    case 0x0e:
      return {'f', 8, true};
    default:
      bytes.fail(fmt::format("is an IDX file of type 0x{:02x}, which there is not", code));
  }
}

}  // namespace

ArrayFile open_npy(std::unique_ptr<ByteStream> bytes) {
  NpyHeader header = read_npy_header(*bytes);
  return ArrayFile(std::move(bytes), header.type, std::move(header.shape), header.fortran_order);
}

ArrayFile open_npy(const std::string& path, const std::string& key) {
  if (is_zip(path)) return open_member(path, key);
  FQ_CHECK(key.empty(), "dataset", "{} is one array: '{}' names one of a .npz archive", path, key);
  if (const std::string kind = file_kind(path); kind != "a NumPy array")
    throw FileError(path, "",
                    fmt::format("[dataset] {} is {}, not a NumPy array (.npy) or an archive of them (.npz)",
                                path, kind.empty() ? "something else" : kind));
  return open_npy(open_stream(path));
}

std::vector<std::string> npz_keys(const std::string& path) {
  if (!is_zip(path)) return {};
  std::vector<std::string> keys;
  const ZipArchive archive(path);
  for (const auto& member : archive.members()) {
    if (!member.name.ends_with(kEnding)) continue;
    const std::string_view name(member.name);
    keys.push_back(one_line_name(printable(name.substr(0, name.size() - kEnding.size()))));
  }
  if (keys.empty())
    throw FileError(path, "",
                    fmt::format("[dataset] {} is a zip archive without NumPy arrays: unpack it, and give the "
                                "folder to fakequant dataset from-images, or its files to the others",
                                path));
  return keys;
}

ArrayFile open_idx(const std::string& path) {
  auto bytes = open_stream(path);
  std::array<unsigned char, 4> begin{}, size{};
  bytes->read(begin.data(), begin.size());
  if (begin[0] != 0 || begin[1] != 0 || begin[3] == 0) {
    const std::string kind = file_kind(path);
    bytes->fail(
        fmt::format("is {}, not an IDX file, as MNIST comes", kind.empty() ? "something else" : kind));
  }
  const ElementType type = idx_type(begin[2], *bytes);
  Shape shape;
  for (int axis = 0; axis < begin[3]; ++axis) {
    bytes->read(size.data(), size.size());
    shape.push_back(std::int64_t(size[0]) << 24 | std::int64_t(size[1]) << 16 | std::int64_t(size[2]) << 8 |
                    std::int64_t(size[3]));
  }
  return ArrayFile(std::move(bytes), type, std::move(shape), false);
}

}  // namespace fq::detail
