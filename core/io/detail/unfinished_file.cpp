#include "fakequant/core/io/detail/unfinished_file.h"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string_view>
#include <system_error>
#include <thread>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakequant/core/io/detail/crc32c.h"

namespace fq::detail {
namespace {

constexpr std::size_t kLongestPart = 200;  // of at most 255 bytes, with room for prefix and suffix
constexpr std::size_t kRandom = 6;
constexpr int kAttempts = 8;  // to become the only writer: two simultaneous writers both retry

[[noreturn]] void raise(int error) { throw std::system_error(error, std::generic_category()); }

std::string random_text() {
  static constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::string out;
  for (std::size_t i = 0; i < kRandom; ++i) out += letters[random() % letters.size()];
  return out;
}

struct CloseFile {
  int file;
  ~CloseFile() { ::close(file); }
};

/// Whether another process is writing a file of this name. Removes a file without a writer.
bool is_written(const std::string& path) {
  const CloseFile other{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)};
  struct stat status {};
  if (other.file < 0 || ::fstat(other.file, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  // A writer holds a lock until it ends in any way. A free lock means that it was killed, and its file is
  // garbage.
  if (::flock(other.file, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  if (is_open_file(other.file, path)) ::unlink(path.c_str());
  return false;
}

}  // namespace

std::string parent_folder(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

int sync_folder(const std::string& folder) {
  const int open = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int error = open < 0 || ::fsync(open) != 0 ? errno : 0;
  if (open >= 0) ::close(open);
  // Some file systems cannot sync a folder, and a folder may be writable but not readable.
  return error == EACCES || error == EINVAL ? 0 : error;
}

std::string companion_name(const std::string& path, const std::string& what) {
  std::string name = std::filesystem::path(path).filename().string();
  // The checksum keeps the names of different targets apart.
  if (name.size() > kLongestPart)
    name = fmt::format("{}~{:08x}", name.substr(0, kLongestPart), crc32c(name.data(), name.size()));
  return fmt::format(".{}.fakequant-{}", name, what);
}

bool is_open_file(int file, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(file, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

UnfinishedFile::UnfinishedFile(std::string target)
    : target_(std::move(target)), folder_(parent_folder(target_)), prefix_(companion_name(target_, "")) {}

UnfinishedFile::UnfinishedFile(std::string target, unsigned mode) : UnfinishedFile(std::move(target)) {
  for (int attempt = 0;; ++attempt) {
    if (alone()) {  // removes files of killed writers before adding one
      create();
      // Creating and locking are two steps, so another writer may appear in between: checks again with the
      // lock.
      if (lock() && alone()) break;
      remove();
    }
    if (attempt == kAttempts) raise(EWOULDBLOCK);
    // Random waiting times that double: two writers do not retry in step.
    std::this_thread::sleep_for(std::chrono::milliseconds(1 + std::random_device()() % (2u << attempt)));
  }
  // The new file gets the permissions of the file that it replaces.
  if (mode != 0) (void)::fchmod(file_, mode);
}

UnfinishedFile::~UnfinishedFile() { remove(); }

void UnfinishedFile::create() {
  do {
    path_ = folder_ + "/" + prefix_ + random_text();
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  } while (file_ < 0 && errno == EEXIST);
  if (file_ >= 0) return;
  path_.clear();
  raise(errno);
}

/// Returns false if another writer has removed this file as abandoned.
bool UnfinishedFile::lock() const {
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return is_open_file(file_, path_);
}

bool UnfinishedFile::alone() const {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder_.c_str()), &::closedir);
  if (!entries) return true;  // the folder is writable but not readable
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    const bool sibling = name.size() == prefix_.size() + kRandom && name.starts_with(prefix_);
    if (!sibling) continue;
    const std::string path = folder_ + "/" + std::string(name);
    if (path != path_ && is_written(path)) return false;
  }
  return true;
}

void UnfinishedFile::rename() {
  if (::rename(path_.c_str(), target_.c_str()) != 0) raise(errno);
  path_.clear();
}

void UnfinishedFile::remove() noexcept {
  if (!path_.empty()) ::unlink(path_.c_str());
  if (file_ >= 0) ::close(file_);
  path_.clear();
  file_ = -1;
}

}  // namespace fq::detail
