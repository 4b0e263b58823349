#include "fakequant/core/io/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakequant/core/check.h"
#include "fakequant/core/io/file_reader.h"

namespace fq {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 30;  // Linux writes at most 2 GiB a call

std::string reason(int error) { return std::generic_category().message(error); }

bool refused_by_system(int error) {
  return error == ENOSPC || error == EFBIG || error == EDQUOT || error == EIO || error == EMFILE ||
         error == ENFILE || error == ENOMEM;
}

std::string resolved(const std::string& path) {
  std::error_code ignored;
  const auto target = std::filesystem::canonical(path, ignored);
  return ignored ? path : target.string();
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), target_(resolved(path_)) {
  struct stat old {};
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) fail(EISDIR, "cannot be written");
  if (exists && !S_ISREG(old.st_mode)) {
    file_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file_ < 0) fail(errno, "cannot be written");
    return;
  }
  if (exists) mode_ = old.st_mode & 07777;
  open_beside();
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0 && !beside_.empty()) ::unlink(beside_.c_str());
  if (file_ >= 0) ::close(file_);
}

void AtomicFile::fail(int error, std::string_view what) const {
  const auto message = fmt::format("[write_file] {} {}: {}", path_, what, reason(error));
  if (refused_by_system(error)) throw SystemError(message);
  throw FileError(path_, "", message);
}

void AtomicFile::open_beside() {
  const std::string name = target_ + ".tmp";
  beside_ = name;
  while (!lock_beside()) {
  }
  if (::ftruncate(file_, 0) != 0) fail(errno, "cannot be written");
  if (mode_ != 0) (void)::fchmod(file_, mode_);
}

// False when the file was renamed away between open and lock: it is then someone's finished file.
bool AtomicFile::lock_beside() {
  file_ = ::open(beside_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file_ < 0) fail(errno, "cannot be written");
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(file_);
    file_ = -1;
    throw SystemError(fmt::format(
        "[write_file] {} is being written by another process or thread: use another path", path_));
  }
  struct stat held {
  }, named{};
  if (::fstat(file_, &held) == 0 && ::stat(beside_.c_str(), &named) == 0 && held.st_ino == named.st_ino)
    return true;
  ::close(file_);
  file_ = -1;
  return false;
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const auto written = ::write(file_, at, std::min(bytes, kPiece));
    if (written < 0 && errno != EINTR) fail(errno, "cannot be written");
    if (written < 0) continue;
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  FQ_CHECK(file_ >= 0, "write_file", "{} was committed already: make another AtomicFile", path_);
  if (!beside_.empty()) {
    if (::fsync(file_) != 0) fail(errno, "cannot be synced");
    if (::rename(beside_.c_str(), target_.c_str()) != 0) fail(errno, "cannot be replaced");
    const auto folder = std::filesystem::path(target_).parent_path();
    const int directory = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0) (void)::fsync(directory);
    if (directory >= 0) ::close(directory);
  }
  ::close(std::exchange(file_, -1));
}

void write_file(const std::string& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

std::string read_file(const std::string& path, std::int64_t limit) {
  const detail::FileReader file(path);
  if (file.size() > limit)
    throw FileError(
        path, "", fmt::format("[read_file] {} has {} bytes, at most {} are read", path, file.size(), limit));
  std::string contents(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, contents.data(), contents.size());
  return contents;
}

}  // namespace fq
