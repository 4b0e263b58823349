/// Loaded before libc (LD_PRELOAD) it makes one call of the system fail: FAIL_CALL is write, pwrite, fsync,
/// rename, ftruncate, open (that make a file), flock, malloc; FAIL_AT says which one, from 1 on, or "all";
/// FAIL_WITH is an errno, or "kill" for SIGKILL in place of the call, or "half" for a write of half of the
/// bytes and SIGKILL, or "wait": the call is made once the file FAIL_UNTIL is there, and FAIL_UNTIL.waiting
/// tells that it waits. FAIL_COUNT names a file that takes the number of calls at the end. Only files below
/// the current folder count, no pipes, calls of malloc of at least FAIL_BYTES bytes, and none before main.
/// What HDF5 asks for it gets: without memory HDF5 does not fail but crash.

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "next.h"
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
  std::size_t bytes =
      std::getenv("FAIL_BYTES") != nullptr ? std::strtoul(std::getenv("FAIL_BYTES"), nullptr, 10) : 1;
  ~Plan();
};

std::atomic<long> calls{0};
Plan plan;
bool ready = false;  // from the beginning of main to the end of `plan`

using Main = int(int, char**, char**);
Main* program = nullptr;
int begin(int count, char** arguments, char** variables) {
  ready = true;
  return program(count, arguments, variables);
}

Plan::~Plan() {
  ready = false;
  if (count == nullptr) return;
  if (std::FILE* file = std::fopen(count, "w")) {
    std::fprintf(file, "%ld\n", calls.load());
    std::fclose(file);
  }
}

void wait_for_file() {
  ready = false;
  char sign[4096];
  std::snprintf(sign, sizeof sign, "%s.waiting", plan.until);
  if (std::FILE* file = std::fopen(sign, "w")) std::fclose(file);
  while (::access(plan.until, F_OK) != 0) ::usleep(10000);
  ready = true;
}

/// Whether this is the call that fails; does not return where it kills.
bool fails(const char* call) {
  if (!ready || plan.call == nullptr || std::strcmp(plan.call, call) != 0) return false;
  if ((++calls != plan.at && !plan.all) || plan.with == nullptr) return false;
  if (std::strcmp(plan.with, "kill") == 0) ::kill(::getpid(), SIGKILL);
  if (std::strcmp(plan.with, "wait") == 0) {
    wait_for_file();
    return false;
  }
  if (std::strcmp(plan.with, "half") != 0) errno = std::atoi(plan.with);
  return true;
}

/// Whether a function of HDF5 is among the callers.
bool is_of_hdf5() {
  ready = false;
  void* callers[64];
  const int count = ::backtrace(callers, 64);
  bool found = false;
  for (int i = 0; i < count && !found; ++i) {
    Dl_info info{};
    found = ::dladdr(callers[i], &info) != 0 && std::strstr(info.dli_fname, "libhdf5") != nullptr;
  }
  ready = true;
  return found;
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

int __libc_start_main(Main* main, int count, char** arguments, void (*init)(), void (*fini)(),
                      void (*loader)(), void* stack) {
  program = main;
  return next<decltype(__libc_start_main)>("__libc_start_main")(begin, count, arguments, init, fini, loader,
                                                                stack);
}

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

void* __libc_malloc(size_t bytes);
void* malloc(size_t bytes) {
  if (!ready || bytes < plan.bytes || !fails("malloc") || is_of_hdf5()) return __libc_malloc(bytes);
  errno = ENOMEM;
  return nullptr;
}

}  // extern "C"
