/// Loaded before libc (LD_PRELOAD) it makes one call of the system fail: FAIL_CALL is write, pwrite, fsync,
/// rename, ftruncate, open (that make a file), flock, malloc; FAIL_AT says which one, from 1 on, or "all";
/// FAIL_WITH is an errno, or "kill" for SIGKILL in place of the call, or "half" for a write of half of the
/// bytes and SIGKILL. FAIL_COUNT names a file that takes the number of calls at the end. Only files below the
/// current folder count, no pipes, and calls of malloc of at least FAIL_BYTES bytes.

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

struct Plan {
  const char* call = std::getenv("FAIL_CALL");
  const char* with = std::getenv("FAIL_WITH");
  const char* count = std::getenv("FAIL_COUNT");
  long at = std::getenv("FAIL_AT") != nullptr ? std::atol(std::getenv("FAIL_AT")) : 0;
  bool all = std::getenv("FAIL_AT") != nullptr && std::strcmp(std::getenv("FAIL_AT"), "all") == 0;
  std::size_t bytes =
      std::getenv("FAIL_BYTES") != nullptr ? std::strtoul(std::getenv("FAIL_BYTES"), nullptr, 10) : 1;
  ~Plan();
};

std::atomic<long> calls{0};
Plan plan;
bool ready = false;
const bool made_ready = (ready = true);

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

Plan::~Plan() {
  ready = false;
  if (count == nullptr) return;
  if (std::FILE* file = std::fopen(count, "w")) {
    std::fprintf(file, "%ld\n", calls.load());
    std::fclose(file);
  }
}

/// Whether this is the call that fails; does not return where it kills.
bool fails(const char* call) {
  if (!ready || plan.call == nullptr || std::strcmp(plan.call, call) != 0) return false;
  if ((++calls != plan.at && !plan.all) || plan.with == nullptr) return false;
  if (std::strcmp(plan.with, "kill") == 0) ::kill(::getpid(), SIGKILL);
  if (std::strcmp(plan.with, "half") != 0) errno = std::atoi(plan.with);
  return true;
}

bool is_file(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

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

int open(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open");
  std::va_list more;
  va_start(more, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  return (flags & O_CREAT) != 0 && fails("open") ? -1 : real(path, flags, mode);
}

void* __libc_malloc(size_t bytes);
void* malloc(size_t bytes) {
  return ready && bytes >= plan.bytes && fails("malloc") ? nullptr : __libc_malloc(bytes);
}

}  // extern "C"
