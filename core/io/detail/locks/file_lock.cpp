#include "fakequant/core/io/detail/locks/file_lock.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/unfinished_file.h"
#include "fakequant/core/log.h"

namespace fq::detail {
namespace {

/// The process that holds a lock.
struct LockOwner {
  std::string host = {};
  pid_t process = 0;
  std::string started = {};  ///< start time of the process, in ticks since the host started; empty if unknown

  [[nodiscard]] static LockOwner self();
  /// Parses the result of `text`; returns no owner for other text.
  [[nodiscard]] static std::optional<LockOwner> parse(std::string_view text);
  /// Returns "HOST PROCESS STARTED", one line without its end.
  [[nodiscard]] std::string text() const;
  /// Returns "process 12 on host".
  [[nodiscard]] std::string words() const;
  /// Whether the owner is a process of this host that has ended. False for other hosts, because their
  /// processes are unknown.
  [[nodiscard]] bool is_gone() const;
};

constexpr int kStartOfProcess = 20;  // fields of /proc/PID/stat between ") " and the time of its start - 1

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

std::string process_start(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line, field;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');  // names may hold spaces
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  for (int i = 0; i < kStartOfProcess; ++i) fields >> field;
  return fields ? field : std::string();
}

LockOwner LockOwner::self() { return {host_name(), ::getpid(), process_start(::getpid())}; }

std::optional<LockOwner> LockOwner::parse(std::string_view text) {
  std::istringstream words{std::string(text)};
  LockOwner owner;
  if (!(words >> owner.host >> owner.process) || owner.process <= 0) return std::nullopt;
  words >> owner.started;
  return owner;
}

std::string LockOwner::text() const { return fmt::format("{} {} {}", host, process, started); }

std::string LockOwner::words() const { return fmt::format("process {} on {}", process, host); }

// The start time distinguishes a process from a later one with the same number.
bool LockOwner::is_gone() const {
  if (host != host_name()) return false;
  if (::kill(process, 0) != 0 && errno == ESRCH) return true;
  const std::string now = process_start(process);
  return !started.empty() && !now.empty() && now != started;
}

}  // namespace
}  // namespace fq::detail

namespace fq {
namespace {

constexpr std::size_t kLongestOwner = 512;

std::string companion_path(const std::string& path, const std::string& what) {
  std::error_code none;
  const auto real = std::filesystem::weakly_canonical(path, none);
  const std::string target = none ? path : real.string();
  return detail::parent_folder(target) + "/" + detail::companion_name(target, what);
}

bool lacks_locks(int error) { return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS; }

/// Returns the text of a lock file that another process has open; empty until that process has written it.
std::string read_lock_text(const std::string& file) {
  std::array<char, kLongestOwner> text{};
  const int open = ::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  const ssize_t size = open < 0 ? 0 : ::read(open, text.data(), text.size());
  if (open >= 0) ::close(open);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

std::string end_of_link(const std::string& link) {
  std::array<char, kLongestOwner> text{};
  const ssize_t size = ::readlink(link.c_str(), text.data(), text.size());
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

}  // namespace

FileLock::FileLock(const std::string& path, const std::function<void(const std::string&)>& waiting)
    : path_(path), lock_(companion_path(path, "lock")), link_(companion_path(path, "owner")) {
  while (has_locks_ ? !take() : !take_link()) {
    if (const std::string owner = this->owner(); !owner.empty()) waiting(owner);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

/// Returns false if another process holds the lock or has removed the file meanwhile, or if the file system
/// has no locks.
bool FileLock::take() {
  file_ = ::open(lock_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (file_ < 0) refuse(errno);
  struct stat status {};
  if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) refuse(EEXIST);
  const int error = ::flock(file_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  if (error == 0 && detail::is_open_file(file_, lock_)) {
    const std::string text = detail::LockOwner::self().text();
    if (::ftruncate(file_, 0) != 0 || ::write(file_, text.data(), text.size()) < 0) {
      // ignored: the text is informative, and the lock is held without it
    }
    return true;
  }
  ::close(std::exchange(file_, -1));
  if (lacks_locks(error)) {
    ::unlink(lock_.c_str());
    has_locks_ = false;
    log(LogLevel::warning, fmt::format("[lock_file] the file system of {} has no locks: the file {} is "
                                       "used instead",
                                       detail::parent_folder(path_), link_));
    return take_link();
  }
  if (error != 0 && error != EWOULDBLOCK) refuse(error);
  return false;
}

/// Returns false while another process holds the lock. Removes the link of a process that has ended.
bool FileLock::take_link() {
  if (::symlink(detail::LockOwner::self().text().c_str(), link_.c_str()) == 0) return true;
  if (errno != EEXIST) refuse(errno);
  const auto owner = detail::LockOwner::parse(end_of_link(link_));
  if (owner && owner->is_gone()) ::unlink(link_.c_str());
  return false;
}

/// Returns an empty string if the lock is free now.
std::string FileLock::owner() const {
  const std::string text = has_locks_ ? read_lock_text(lock_) : end_of_link(link_);
  std::error_code none;
  const auto kind = std::filesystem::symlink_status(has_locks_ ? lock_ : link_, none).type();
  if (kind == std::filesystem::file_type::not_found) return {};
  const auto owner = detail::LockOwner::parse(text);
  const bool gone = owner && owner->is_gone();
  if (!has_locks_ && gone) return {};
  std::string words = owner && !gone ? owner->words() : "another process";
  if (!has_locks_) words += fmt::format(" (if it has ended, remove {})", link_);
  return words;
}

void FileLock::refuse(int error) {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
  const std::string reason = std::generic_category().message(error);
  if (!has_locks_)
    throw SystemError(
        fmt::format("[lock_file] {} cannot be locked: its file system has no locks, and {} cannot be made "
                    "({}): keep it on another file system",
                    path_, link_, reason));
  throw FileError(path_, "", fmt::format("[lock_file] {} cannot be locked by {}: {}", path_, lock_, reason));
}

FileLock::~FileLock() {
  ::unlink((has_locks_ ? lock_ : link_).c_str());
  if (file_ >= 0) ::close(file_);
}

}  // namespace fq
