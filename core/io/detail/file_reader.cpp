#include "fakequant/core/io/detail/file_reader.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/crc32c.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw FileError(path, "", fmt::format("[read_file] {} cannot be read: {}", path, why));
}

}  // namespace

FileReader::FileReader(std::string path) : path_(std::move(path)) {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) fail(path_, std::generic_category().message(errno));
  if (!S_ISREG(status.st_mode))
    fail(path_, S_ISDIR(status.st_mode) ? "it is a directory" : "it is not a regular file");
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) fail(path_, std::generic_category().message(errno));
  if (::fstat(file_, &status) == 0 && S_ISREG(status.st_mode)) {
    size_ = status.st_size;
    return;
  }
  ::close(file_);
  fail(path_, "it is not a regular file");
}

FileReader::~FileReader() { ::close(file_); }

bool FileReader::is_same(int descriptor) const noexcept {
  struct stat own {
  }, other{};
  return ::fstat(file_, &own) == 0 && ::fstat(descriptor, &other) == 0 && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino;
}

void FileReader::read(std::int64_t offset, void* data, std::size_t bytes) const {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const auto got = ::pread(file_, at, std::min(bytes, std::size_t{1} << 30), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, std::generic_category().message(errno));
    if (got == 0) fail(path_, "it ends too early");
    at += got;
    offset += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

std::uint32_t FileReader::checksum(std::int64_t offset, std::int64_t bytes) const {
  const auto buffer =
      std::make_unique_for_overwrite<char[]>(static_cast<std::size_t>(std::min(kPiece, bytes)));
  std::uint32_t crc = 0;
  for (std::int64_t end = offset + bytes; offset < end;) {
    const auto piece = static_cast<std::size_t>(std::min(kPiece, end - offset));
    read(offset, buffer.get(), piece);
    crc = crc32c(buffer.get(), piece, crc);
    offset += static_cast<std::int64_t>(piece);
  }
  return crc;
}

}  // namespace fq::detail
