#pragma once

/// The record that record_calls.cpp writes, and which files are in it.

#include <cstdlib>
#include <mutex>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace crash {

inline std::string current_folder() {
  char name[4096] = {};
  return ::getcwd(name, sizeof name) != nullptr ? std::string(name) + "/" : std::string();
}

inline std::recursive_mutex calls_mutex;

struct Record {
  std::string folder = current_folder();
  long file = std::getenv("RECORD_TO") == nullptr ? -1
                                                  : ::syscall(SYS_openat, AT_FDCWD, std::getenv("RECORD_TO"),
                                                              O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

  void put(const std::string& line, const void* data = nullptr, std::size_t bytes = 0) const {
    if (file < 0) return;
    (void)!::syscall(SYS_write, file, (line + "\n").data(), line.size() + 1);
    if (bytes > 0) (void)!::syscall(SYS_write, file, data, bytes);
  }
};

inline Record& record() {
  static Record made;
  return made;
}

/// Below the current folder, from there; empty for other paths.
inline std::string inner(const std::string& path) {
  const std::string& folder = record().folder;
  if (path.empty()) return {};
  if (path[0] != '/') return path.starts_with("./") ? path.substr(2) : path;
  if (path + "/" == folder) return ".";
  return path.starts_with(folder) ? path.substr(folder.size()) : std::string();
}

inline std::string descriptor_path(int file) {
  char name[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  return ::readlink(link.c_str(), name, sizeof name - 1) > 0 ? name : std::string();
}

/// A file below the current folder; default values for other descriptors.
struct File {
  bool counts = false, is_folder = false;
  std::string inode = {}, path = {};
  off_t size = 0;

  explicit File(int file) {
    struct stat status {};
    if (file < 0 || record().file < 0 || ::fstat(file, &status) != 0) return;
    path = inner(descriptor_path(file));
    is_folder = S_ISDIR(status.st_mode);
    counts = !path.empty() && (is_folder || S_ISREG(status.st_mode));
    inode = std::to_string(status.st_ino);
    size = status.st_size;
  }
};

}  // namespace crash
