#include "fakequant/train/data/reader/zip_archive.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include <zlib.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"

namespace fq::detail {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::int64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kMostComment = 65535;
constexpr std::size_t kEntryBytes = 46, kHeaderBytes = 30;
constexpr std::int64_t kMostMembers = 1 << 16, kMostDirectory = 64 << 20;

template <class T>
T at(const std::string& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

bool climbs(const std::string& name) {
  const std::filesystem::path path(name);
  return path.is_absolute() || name.find('\\') != name.npos || name.find('\0') != name.npos ||
         std::ranges::any_of(path, [](const auto& part) { return part == ".."; });
}

/// Compares size and checksum of what passes through.
class CheckedStream final : public ByteStream {
 public:
  CheckedStream(std::unique_ptr<ByteStream> bytes, std::int64_t size, std::uint32_t expected)
      : ByteStream(bytes->place()), bytes_(std::move(bytes)), left_(size), expected_(expected) {}

  std::int64_t at_most() const override { return std::min(left_, bytes_->at_most()); }
  std::size_t read_some(void* to, std::size_t bytes) override {
    bytes = std::min<std::size_t>(bytes, std::size_t(left_));
    const std::size_t got = bytes == 0 ? 0 : bytes_->read_some(to, bytes);
    if (got == 0 && bytes > 0) fail("ends early: the archive is damaged");
    crc_ = static_cast<std::uint32_t>(::crc32_z(crc_, static_cast<const Bytef*>(to), got));
    left_ -= std::int64_t(got);
    if (left_ == 0 && crc_ != expected_) fail("has another checksum than its archive says: it is damaged");
    return got;
  }

 private:
  std::unique_ptr<ByteStream> bytes_;
  std::int64_t left_;
  std::uint32_t expected_, crc_ = 0;
};

}  // namespace

ZipArchive::ZipArchive(const std::string& path) : file_(std::make_shared<const FileReader>(path)) {
  std::int64_t count = 0;
  const std::string entries = directory(count);
  std::size_t offset = 0;
  for (std::int64_t i = 0; i < count; ++i) offset = take_member(entries, offset);
}

void ZipArchive::fail(const std::string& why) const {
  throw FileError(path(), "", fmt::format("[dataset] {} {}", path(), why));
}

/// The entries, and how many there are, by the record at the end or its form for large archives.
std::string ZipArchive::directory(std::int64_t& count) const {
  const std::int64_t tail_bytes = std::min(file_->size(), kEndBytes + kMostComment);
  std::string tail(std::size_t(tail_bytes), '\0');
  file_->read(file_->size() - tail_bytes, tail.data(), tail.size());
  const auto end = tail.rfind("PK\x05\x06");
  if (end == tail.npos || tail.size() - end < std::size_t(kEndBytes))
    fail("is no zip archive, or a truncated one: its directory is missing");
  count = at<std::uint16_t>(tail, end + 10);
  std::int64_t bytes = at<std::uint32_t>(tail, end + 12), begin = at<std::uint32_t>(tail, end + 16);
  const std::int64_t locator_at = file_->size() - tail_bytes + std::int64_t(end) - kLocatorBytes;
  if ((count == 0xffff || bytes == 0xffffffff || begin == 0xffffffff) && locator_at >= 0) {
    std::string locator(kLocatorBytes, '\0'), record(kEnd64Bytes, '\0');
    file_->read(locator_at, locator.data(), locator.size());
    const auto record_at = at<std::int64_t>(locator, 8);
    if (locator.starts_with("PK\x06\x07") && record_at >= 0 && record_at <= file_->size() - kEnd64Bytes) {
      file_->read(record_at, record.data(), record.size());
      count = at<std::int64_t>(record, 32);
      bytes = at<std::int64_t>(record, 40);
      begin = at<std::int64_t>(record, 48);
    }
  }
  if (count < 0 || count > kMostMembers) fail(fmt::format("has {} members, at most {}", count, kMostMembers));
  if (bytes < 0 || begin < 0 || bytes > kMostDirectory || begin > file_->size() - bytes)
    fail("has a directory that does not lie in the file: it is damaged");
  std::string entries(std::size_t(bytes), '\0');
  file_->read(begin, entries.data(), entries.size());
  return entries;
}

std::size_t ZipArchive::take_member(const std::string& entries, std::size_t offset) {
  const auto need = [&](std::size_t bytes) {
    if (offset + bytes > entries.size()) fail("has a directory that ends early: it is damaged");
  };
  need(kEntryBytes);
  if (entries.compare(offset, 4, "PK\x01\x02") != 0) fail("has a damaged directory");
  Member member;
  const bool encrypted = (at<std::uint16_t>(entries, offset + 8) & 1) != 0;
  member.method = encrypted ? -1 : at<std::uint16_t>(entries, offset + 10);
  member.crc32 = at<std::uint32_t>(entries, offset + 16);
  member.packed = at<std::uint32_t>(entries, offset + 20);
  member.size = at<std::uint32_t>(entries, offset + 24);
  member.header = at<std::uint32_t>(entries, offset + 42);
  const std::size_t name = at<std::uint16_t>(entries, offset + 28),
                    extra = at<std::uint16_t>(entries, offset + 30);
  const std::size_t comment = at<std::uint16_t>(entries, offset + 32);
  need(kEntryBytes + name + extra + comment);
  member.name = entries.substr(offset + kEntryBytes, name);
  // Numbers that do not fit 32 bits stand in the extra field 1, in this order.
  for (std::size_t field = offset + kEntryBytes + name, stop = field + extra; field + 4 <= stop;) {
    const std::size_t size = at<std::uint16_t>(entries, field + 2);
    std::size_t value = field + 4;
    const std::size_t after = std::min(value + size, stop);
    if (at<std::uint16_t>(entries, field) == 1)
      for (auto* number : {&member.size, &member.packed, &member.header})
        if (*number == 0xffffffff && value + 8 <= after) {
          *number = at<std::int64_t>(entries, value);
          value += 8;
        }
    field = after;
  }
  if (climbs(member.name))
    fail(fmt::format("has a member '{}', whose path leads out of the archive: it is not to be trusted",
                     printable(member.name)));
  members_.push_back(std::move(member));
  return offset + kEntryBytes + name + extra + comment;
}

std::unique_ptr<ByteStream> ZipArchive::open(const Member& member) const {
  const std::string place = path() + ":" + one_line_name(printable(member.name));
  const auto refuse = [&](const std::string& why) {
    throw FileError(place, "", fmt::format("[dataset] {} {}", place, why));
  };
  if (member.method != 0 && member.method != 8)
    refuse(member.method < 0
               ? "is encrypted: unpack it and give the file"
               : fmt::format("is compressed by method {}: only stored and deflated ones are read",
                             member.method));
  std::string header(kHeaderBytes, '\0');
  const bool fits = member.header >= 0 && member.packed >= 0 && member.size >= 0 &&
                    member.header <= file_->size() - std::int64_t(kHeaderBytes);
  if (!fits) refuse("lies outside of its archive: it is damaged");
  file_->read(member.header, header.data(), header.size());
  const std::int64_t begin = member.header + std::int64_t(kHeaderBytes) + at<std::uint16_t>(header, 26) +
                             at<std::uint16_t>(header, 28);
  if (!header.starts_with("PK\x03\x04") || begin > file_->size() - member.packed ||
      (member.method == 0 && member.packed != member.size))
    refuse("lies outside of its archive: it is damaged");
  auto bytes = open_stream(file_, place, begin, member.packed);
  if (member.method == 8) bytes = expand(std::move(bytes), Packing::deflate);
  return std::make_unique<CheckedStream>(std::move(bytes), member.size, member.crc32);
}

}  // namespace fq::detail
