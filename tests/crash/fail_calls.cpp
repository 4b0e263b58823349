/// Loaded before libc (LD_PRELOAD) it makes one call of the system fail: FAIL_CALL is write, pwrite, fsync,
/// rename, ftruncate, open (that make a file), flock; FAIL_AT says which one, from 1 on, or "all";
/// FAIL_WITH is an errno, "kill" for SIGKILL instead of the call, "half" for a write of half of the
/// bytes and SIGKILL, or "wait": the call is made once the file FAIL_UNTIL is there, and FAIL_UNTIL.waiting
/// is created when it begins to wait. FAIL_COUNT names a file that gets the number of calls at the end. Only
/// files below the current folder count, no pipes, and no calls before main or after its end.

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "main_hook.h"
#include "opens.h"

namespace {

using crash::next;

struct Plan {
  const char* call = std::getenv("FAIL_CALL");
  const char* with = std::getenv("FAIL_WITH");
  const char* count = std::getenv("FAIL_COUNT");
  const char* until = std::getenv("FAIL_UNTIL");
  long at = std::getenv("FAIL_AT") != nullptr ? std::atol(std::getenv("FAIL_AT")) : 0;
  bool all = std::getenv("FAIL_AT") != nullptr && std::strcmp(std::getenv("FAIL_AT"), "all") == 0;
  ~Plan();
};

std::atomic<long> calls{0};
Plan plan;

Plan::~Plan() {
  if (count == nullptr) return;
  if (std::FILE* file = std::fopen(count, "w")) {
    std::fprintf(file, "%ld\n", calls.load());
    std::fclose(file);
  }
}

void wait_for_file() {
  crash::running = false;
  char sign[4096];
  std::snprintf(sign, sizeof sign, "%s.waiting", plan.until);
  if (std::FILE* file = std::fopen(sign, "w")) std::fclose(file);
  while (::access(plan.until, F_OK) != 0) ::usleep(10000);
  crash::running = true;
}

/// Whether this is the call that fails; does not return where it kills.
bool fails(const char* call) {
  if (!crash::running || plan.call == nullptr || std::strcmp(plan.call, call) != 0) return false;
  if ((++calls != plan.at && !plan.all) || plan.with == nullptr) return false;
  if (std::strcmp(plan.with, "kill") == 0) ::kill(::getpid(), SIGKILL);
  if (std::strcmp(plan.with, "wait") == 0) {
    wait_for_file();
    return false;
  }
  if (std::strcmp(plan.with, "half") != 0) errno = std::atoi(plan.with);
  return true;
}

bool is_file(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

template <class Open>
int crash::opening(const char*, int flags, Open&& open) {
  return (flags & O_CREAT) != 0 && fails("open") ? -1 : open();
}

extern "C" {

ssize_t write(int file, const void* data, size_t bytes) {
  static auto* const real = next<decltype(write)>("write");
  if (!is_file(file) || !fails("write")) return real(file, data, bytes);
  if (std::strcmp(plan.with, "half") != 0) return -1;
  (void)real(file, data, bytes / 2);
  ::kill(::getpid(), SIGKILL);
  return -1;
}

ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t at) {
  static auto* const real = next<decltype(pwrite64)>("pwrite64");
  return is_file(file) && fails("pwrite") ? -1 : real(file, data, bytes, at);
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
  static auto* const real = next<decltype(pwrite)>("pwrite");
  return is_file(file) && fails("pwrite") ? -1 : real(file, data, bytes, at);
}

int fsync(int file) {
  static auto* const real = next<decltype(fsync)>("fsync");
  return fails("fsync") ? -1 : real(file);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<decltype(rename)>("rename");
  return fails("rename") ? -1 : real(from, to);
}

int ftruncate(int file, off_t bytes) noexcept {
  static auto* const real = next<decltype(ftruncate)>("ftruncate");
  return fails("ftruncate") ? -1 : real(file, bytes);
}

int flock(int file, int operation) noexcept {
  static auto* const real = next<decltype(flock)>("flock");
  return fails("flock") ? -1 : real(file, operation);
}

}  // extern "C"
