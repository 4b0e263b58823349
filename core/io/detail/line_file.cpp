#include "fakequant/core/io/detail/line_file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "fakequant/core/error.h"

namespace fq {
namespace {

[[noreturn]] void fail_line(const std::string& path, int error) {
  const std::string message =
      fmt::format("[add_line] {} cannot be written: {}", path, std::generic_category().message(error));
  if (error == ENOSPC || error == EDQUOT || error == EIO || error == EFBIG) throw SystemError(message);
  throw FileError(path, "", message);
}

}  // namespace

LineFile::LineFile(std::string path) : path_(std::move(path)) {
  // O_APPEND: lines of several processes do not overwrite each other. O_NOFOLLOW: a planted link must not
  // redirect the file.
  file_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file_ < 0 && errno == ELOOP)
    throw FileError(path_, "",
                    fmt::format("[add_line] {} is a link: remove it, or name another folder", path_));
  if (file_ < 0) fail_line(path_, errno);
}

LineFile::~LineFile() { ::close(file_); }

void LineFile::add(std::string_view line) { add_bytes(std::string(line) + '\n'); }

void LineFile::add_bytes(std::string_view bytes) {
  ssize_t written = 0;
  do written = ::write(file_, bytes.data(), bytes.size());
  while (written < 0 && errno == EINTR);
  // One call per line keeps it whole. A short write to a file means that the disk is full.
  if (written != static_cast<ssize_t>(bytes.size())) fail_line(path_, written < 0 ? errno : ENOSPC);
}

void LineFile::sync() const {
  if (::fsync(file_) != 0 && errno != EINVAL) fail_line(path_, errno);  // a pipe cannot be synced
}

}  // namespace fq
