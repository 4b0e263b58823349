#include "fakequant/core/io/detail/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/core/io/detail/unfinished_file.h"

namespace fq {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{1} << 30;  // Linux writes at most 2 GiB a call
// A file system may accept an empty file and still have no room or quota for a block.
constexpr std::size_t kTrial = 4096;
constexpr int kMostLinks = 40;  // as Linux

// Returns whether the machine, not the path, is the cause: the caller may then retry (SystemError).
bool refused_by_system(int error) {
  return error == ENOSPC || error == EFBIG || error == EDQUOT || error == EIO || error == EMFILE ||
         error == ENFILE || error == ENOMEM;
}

[[noreturn]] void fail(const std::string& path, int error, std::string_view what = "cannot be written") {
  if (error == EWOULDBLOCK)
    throw SystemError(
        fmt::format("[write_file] {} is being written by another process or thread: use another path", path));
  const auto message =
      fmt::format("[write_file] {} {}: {}", path, what, std::generic_category().message(error));
  if (refused_by_system(error)) throw SystemError(message);
  throw FileError(path, "", message);
}

/// Returns the end of a chain of links whose target does not exist.
std::string resolve_links(const std::string& path) {
  std::string at = path;
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code none;
    const fs::path next = fs::read_symlink(at, none);
    if (none) return at;
    at = (fs::path(at).parent_path() / next).string();
  }
  fail(path, ELOOP);
}

/// The file system entry at a path.
struct Place {
  enum class Kind { nothing, file, other } kind = Kind::nothing;
  std::string target;  // links resolved
  unsigned mode = 0;   // of a file
};

Place find_place(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) fail(path, errno);
    const std::string target = resolve_links(path);
    if (fs::path(target).filename().empty()) fail(path, ENOENT);
    return {Place::Kind::nothing, target};
  }
  if (S_ISDIR(status.st_mode)) fail(path, EISDIR);
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) fail(path, errno);
  // Pipes, terminals and devices (/dev/stdout) cannot be replaced by a rename: they are written directly.
  if (!S_ISREG(status.st_mode)) return {Place::Kind::other, path};
  std::error_code none;
  const fs::path target = fs::canonical(path, none);
  return {Place::Kind::file, none ? path : target.string(), status.st_mode & 07777u};
}

/// Targets of checked paths, resolved at the time of the check.
class CheckedTargets {
 public:
  static CheckedTargets& instance() {
    static CheckedTargets all;
    return all;
  }
  void set(const std::string& path, const std::string& target) {
    std::error_code none;
    const fs::path folder = fs::absolute(detail::parent_folder(target), none);
    const fs::path whole = fs::weakly_canonical(folder, none);
    const std::scoped_lock lock(mutex_);
    targets_[normalized_path(path)] = ((none ? folder : whole) / fs::path(target).filename()).string();
  }
  /// Returns the target, or an empty string for a path that was not checked.
  [[nodiscard]] std::string of(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    const auto found = targets_.find(normalized_path(path));
    return found == targets_.end() ? std::string() : found->second;
  }

 private:
  static std::string normalized_path(const std::string& path) {
    std::error_code none;  // ignored: a later write reports an empty path
    return fs::absolute(path, none).lexically_normal().string();
  }

  std::mutex mutex_;
  std::map<std::string, std::string> targets_;
};

/// Returns the file at the target of a checked path. A link at the target was created after the check; it is
/// replaced, not followed.
Place checked_place(const std::string& path, const std::string& target) {
  struct stat status {};
  const bool exists = ::lstat(target.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) fail(path, errno);
  if (exists && S_ISDIR(status.st_mode)) fail(path, EISDIR);
  if (!exists || !S_ISREG(status.st_mode)) return {Place::Kind::nothing, target};
  if (::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) fail(path, errno);
  return {Place::Kind::file, target, status.st_mode & 07777u};
}

void write_all(int file, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const auto written = ::write(file, bytes.data(), std::min(bytes.size(), kPiece));
    if (written < 0 && errno != EINTR) fail(path, errno);
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  const std::string checked = CheckedTargets::instance().of(path_);
  const Place place = checked.empty() ? find_place(path_) : checked_place(path_, checked);
  target_ = place.target;
  if (place.kind == Place::Kind::other) {
    direct_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    struct stat status {};
    if (direct_ < 0 || ::fstat(direct_, &status) != 0) fail(path_, errno);
    if (S_ISREG(status.st_mode)) {  // created after the check
      ::close(std::exchange(direct_, -1));
      fail(path_, EEXIST);
    }
    return;
  }
  try {
    unfinished_ = std::make_unique<detail::UnfinishedFile>(target_, place.mode);
  } catch (const std::system_error& error) {
    fail(path_, error.code().value());
  }
}

AtomicFile::~AtomicFile() {
  if (direct_ >= 0) ::close(direct_);
}

int AtomicFile::file() const noexcept { return unfinished_ ? unfinished_->descriptor() : direct_; }

void AtomicFile::write(const void* data, std::size_t bytes) {
  write_all(file(), {static_cast<const char*>(data), bytes}, path_);
}

void AtomicFile::sync() const {
  FQ_CHECK(file() >= 0, "write_file", "{} was committed already: make another AtomicFile", path_);
  if (unfinished_ && ::fsync(file()) != 0) fail(path_, errno, "cannot be synced");
}

void AtomicFile::replace() try {
  if (unfinished_) unfinished_->rename();
} catch (const std::system_error& error) {
  fail(path_, error.code().value(), "cannot be replaced");
}

void AtomicFile::sync_folder() const {
  const int error = unfinished_ ? detail::sync_folder(detail::parent_folder(target_)) : 0;
  if (error != 0)
    throw SystemError(fmt::format("[write_file] {} is written, but its directory cannot be synced: {}", path_,
                                  std::generic_category().message(error)));
}

void AtomicFile::commit() { commit_together({*this}); }

void commit_together(std::initializer_list<std::reference_wrapper<AtomicFile>> files) {
  // All bytes are on disk before the first rename: a crash then cannot leave an incomplete file in place.
  for (const AtomicFile& file : files) file.sync();
  for (AtomicFile& file : files) file.replace();
  for (AtomicFile& file : files) {
    file.sync_folder();
    file.unfinished_.reset();
    if (file.direct_ >= 0) ::close(std::exchange(file.direct_, -1));
  }
}

/// Throws if `path` cannot be written now.
void check_writable(const std::string& path) {
  const Place place = find_place(path);
  if (place.kind == Place::Kind::other) return;
  try {
    const detail::UnfinishedFile trial(place.target, 0);
    write_all(trial.descriptor(), std::string(kTrial, '\0'), path);
    CheckedTargets::instance().set(path, place.target);
  } catch (const std::system_error& error) {
    // EWOULDBLOCK: another process writes the path now, but may be done before the real write.
    if (error.code().value() != EWOULDBLOCK) fail(path, error.code().value());
  }
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
