#include "fakequant/core/io/detail/file_lock.h"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/unfinished_file.h"

namespace fq {
namespace {

std::string lock_of(const std::string& path) {
  std::error_code none;
  const auto real = std::filesystem::weakly_canonical(path, none);
  const std::string target = none ? path : real.string();
  return detail::folder_of(target) + "/" + detail::companion_name(target, "lock");
}

}  // namespace

FileLock::FileLock(const std::string& path, const std::function<void()>& waiting)
    : path_(path), lock_(lock_of(path)) {
  while (!take()) {
    waiting();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

/// False while another has it, and when that one has removed it meanwhile.
bool FileLock::take() {
  file_ = ::open(lock_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (file_ < 0) refuse(errno);
  struct stat status {};
  if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) refuse(EEXIST);
  const bool locked = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  if (!locked && errno != EWOULDBLOCK) refuse(errno);
  if (locked && detail::is_open_file(file_, lock_)) return true;
  ::close(std::exchange(file_, -1));
  return false;
}

void FileLock::refuse(int error) {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
  const auto message = fmt::format("[lock_file] {} cannot be locked by {}: {}", path_, lock_,
                                   std::generic_category().message(error));
  if (error == ENOLCK || error == EOPNOTSUPP) throw SystemError(message);
  throw FileError(path_, "", message);
}

FileLock::~FileLock() {
  ::unlink(lock_.c_str());
  ::close(file_);
}

}  // namespace fq
