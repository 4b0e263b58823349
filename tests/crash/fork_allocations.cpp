/// Loaded before libc (LD_PRELOAD) it lets memory run out in copies of the process (fork). At each call of
/// malloc and its like within main whose callers were not there before, it writes "new" to FORK_TALK ("7,8",
/// descriptors to read and write) and reads letters: o, a copy continues without this memory; a, without this
/// and all later allocations; n, no more copies. The end of each copy is written ("ended STATUS", of waitpid)
/// before the next letter is read. FORK_ERRORS gets the output of copies, FORK_CALLERS the callers. Threads
/// run in turn on the first one (one_thread.h), because a copy has only one. Allocations of the libraries in
/// `kOthers` succeed, and their name is written instead of "new".

#include <cstdio>
#include <cstdlib>

#include <sys/wait.h>

#include "allocations.h"
#include "callers.h"
#include "main_hook.h"
#include "one_thread.h"

namespace {

constexpr crash::Library kOthers[] = {
    {"libhdf5"}, {"libdnnl"}, {"libgomp", true}, {"__cxa_thread_atexit_impl"}};
constexpr unsigned kSeconds = 60;  // that a copy may take

struct Talk {
  int in = -1, out = -1;
  const char* errors = std::getenv("FORK_ERRORS");
  const char* callers = std::getenv("FORK_CALLERS");

  Talk() {
    const char* both = std::getenv("FORK_TALK");
    if (both == nullptr || std::sscanf(both, "%d,%d", &in, &out) != 2) return;
    for (const int file : {in, out}) ::fcntl(file, F_SETFD, FD_CLOEXEC);
    ::unsetenv("FORK_TALK");  // programs that it starts are let alone
  }
  void tell(const char* line) const { (void)!::write(out, line, std::strlen(line)); }
  [[nodiscard]] char answer() const {
    char letter = 'n';
    return ::read(in, &letter, 1) == 1 ? letter : 'n';
  }
};

const Talk talk;
bool busy = false;                          // true during allocations of this library
bool is_copy = false, has_nothing = false;  // in a copy: whether all allocations fail

/// File offsets of the process, which copies share.
struct FileOffsets {
  off_t at[64];
  FileOffsets() {
    for (int file = 0; file < 64; ++file) at[file] = ::lseek(file, 0, SEEK_CUR);
  }
  ~FileOffsets() {
    for (int file = 0; file < 64; ++file)
      if (at[file] >= 0) ::lseek(file, at[file], SEEK_SET);
  }
};

void begin_copy(bool nothing) {
  is_copy = true;
  has_nothing = nothing;
  ::alarm(kSeconds);
  ::close(talk.in);
  ::close(talk.out);
  const int errors = ::open(talk.errors, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  ::dup2(errors, STDERR_FILENO);
  ::close(errors);
}

/// Whether this is the copy.
bool fork_one(bool nothing) {
  const FileOffsets offsets;
  const pid_t copy = ::fork();
  if (copy == 0) return begin_copy(nothing), true;
  int status = -1;
  if (copy > 0) ::waitpid(copy, &status, 0);
  char line[32];
  std::snprintf(line, sizeof line, "ended %d\n", status);
  talk.tell(line);
  return false;
}

bool asks(const crash::Callers& callers) {
  for (char letter = talk.answer(); letter != 'n'; letter = talk.answer()) {
    callers.write(talk.callers);
    if (fork_one(letter == 'a')) return true;
  }
  return false;
}

bool refuses_here() {
  const crash::Callers callers;
  if (!is_copy && !are_new(callers)) return false;
  const char* const other = callers.find_library(kOthers, reinterpret_cast<const void*>(crash::program));
  if (is_copy) return other == nullptr;
  talk.tell(other == nullptr ? "new" : other);
  talk.tell("\n");
  return other == nullptr && asks(callers);
}

}  // namespace

bool crash::refuses() {
  if (!running || busy || talk.in < 0 || (is_copy && !has_nothing)) return false;
  busy = true;
  const bool none = refuses_here();
  busy = false;
  return none;
}
