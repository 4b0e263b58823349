/// Loaded before libc (LD_PRELOAD) it records the changes of a program to files below the current folder,
/// in their order, for tests/cli/lib/disk.py: to the file RECORD_TO, one line per call,
/// followed by the written bytes.
///
///     create INODE PATH | write INODE OFFSET BYTES | size INODE BYTES | sync INODE | folder PATH
///     rename FROM<tab>TO | link FROM<tab>TO | remove PATH | make PATH       (folder: it was synced)

#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "opens.h"
#include "record.h"

namespace {

using namespace crash;

bool is_there(const char* path) {
  struct stat status {};
  return ::lstat(path, &status) == 0;
}

void note_open(int file, bool was_there) {
  const File opened(file);
  if (opened.counts && !opened.is_folder && !was_there)
    record().put("create " + opened.inode + " " + opened.path);
}

void note_write(const File& file, off_t at, const void* data, ssize_t bytes) {
  if (!file.counts || bytes <= 0) return;
  record().put("write " + file.inode + " " + std::to_string(at) + " " + std::to_string(bytes), data,
               static_cast<std::size_t>(bytes));
}

off_t file_offset(int descriptor, const File& file) {
  return (::fcntl(descriptor, F_GETFL) & O_APPEND) != 0 ? file.size : ::lseek(descriptor, 0, SEEK_CUR);
}

void note(const std::string& what, const std::string& path) {
  if (!path.empty()) record().put(what + " " + path);
}

template <class Call>
int noted_sync(int file, Call&& call) {
  const std::scoped_lock lock(calls_mutex);
  const File synced(file);
  const int result = call();
  if (result == 0 && synced.counts)
    record().put(synced.is_folder ? "folder " + synced.path : "sync " + synced.inode);
  return result;
}

}  // namespace

template <class Open>
int crash::opening(const char* path, int flags, Open&& open) {
  const std::scoped_lock lock(calls_mutex);
  const bool was_there = is_there(path);
  const int file = open();
  if (file >= 0 && (flags & O_CREAT) != 0) note_open(file, was_there);
  if (file >= 0 && (flags & O_TRUNC) != 0 && was_there)
    if (const File opened(file); opened.counts) record().put("size " + opened.inode + " 0");
  return file;
}

extern "C" {

std::FILE* fopen(const char* path, const char* mode) {
  static auto* const real = next<decltype(fopen)>("fopen");
  std::FILE* file = nullptr;
  opening(path,
          mode[0] == 'r'   ? 0
          : mode[0] == 'a' ? O_CREAT
                           : O_CREAT | O_TRUNC,
          [&] {
            file = real(path, mode);
            return file == nullptr ? -1 : ::fileno(file);
          });
  return file;
}

std::FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }

ssize_t write(int file, const void* data, size_t bytes) {
  static auto* const real = next<decltype(write)>("write");
  const std::scoped_lock lock(calls_mutex);
  const File written(file);
  const off_t at = written.counts ? file_offset(file, written) : 0;
  const ssize_t done = real(file, data, bytes);
  note_write(written, at, data, done);
  return done;
}

ssize_t writev(int file, const iovec* parts, int count) {
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t done = write(file, parts[i].iov_base, parts[i].iov_len);
    if (done < 0) return all > 0 ? all : done;
    all += done;
  }
  return all;
}

ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t at) {
  static auto* const real = next<decltype(pwrite64)>("pwrite64");
  const std::scoped_lock lock(calls_mutex);
  const ssize_t done = real(file, data, bytes, at);
  note_write(File(file), at, data, done);
  return done;
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) { return pwrite64(file, data, bytes, at); }

int ftruncate64(int file, off64_t bytes) noexcept {
  static auto* const real = next<decltype(ftruncate64)>("ftruncate64");
  const std::scoped_lock lock(calls_mutex);
  const int result = real(file, bytes);
  if (const File cut(file); result == 0 && cut.counts)
    record().put("size " + cut.inode + " " + std::to_string(bytes));
  return result;
}

int ftruncate(int file, off_t bytes) noexcept { return ftruncate64(file, bytes); }

int fsync(int file) {
  static auto* const real = next<decltype(fsync)>("fsync");
  return noted_sync(file, [&] { return real(file); });
}

int fdatasync(int file) {
  static auto* const real = next<decltype(fdatasync)>("fdatasync");
  return noted_sync(file, [&] { return real(file); });
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<decltype(rename)>("rename");
  const std::scoped_lock lock(calls_mutex);
  const int result = real(from, to);
  if (result == 0 && !inner(to).empty()) record().put("rename " + inner(from) + "\t" + inner(to));
  return result;
}

int link(const char* from, const char* to) noexcept {
  static auto* const real = next<decltype(link)>("link");
  const std::scoped_lock lock(calls_mutex);
  const int result = real(from, to);
  if (result == 0 && !inner(to).empty()) record().put("link " + inner(from) + "\t" + inner(to));
  return result;
}

int unlink(const char* path) noexcept {
  static auto* const real = next<decltype(unlink)>("unlink");
  const std::scoped_lock lock(calls_mutex);
  const int result = real(path);
  if (result == 0) note("remove", inner(path));
  return result;
}

int remove(const char* path) noexcept {
  static auto* const real = next<decltype(remove)>("remove");
  const std::scoped_lock lock(calls_mutex);
  const int result = real(path);
  if (result == 0) note("remove", inner(path));
  return result;
}

int rmdir(const char* path) noexcept {
  static auto* const real = next<decltype(rmdir)>("rmdir");
  const std::scoped_lock lock(calls_mutex);
  const int result = real(path);
  if (result == 0) note("remove", inner(path));
  return result;
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const real = next<decltype(mkdir)>("mkdir");
  const std::scoped_lock lock(calls_mutex);
  const int result = real(path, mode);
  if (result == 0) note("make", inner(path));
  return result;
}

}  // extern "C"
