#include "fakequant/cli/system/child_process.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <sstream>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakequant/cli/system/signals.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/core/detail/check.h"

namespace fq::cli {
namespace {

constexpr std::chrono::milliseconds kLookEvery{20};

/// Tells the parent why a child could not become another program; closed when it did.
class FailurePipe {
 public:
  FailurePipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0)
      throw SystemError(fmt::format("[run_program] no pipe: {}", std::strerror(errno)));
  }
  ~FailurePipe() {
    ::close(ends_[0]);
    close_writing();
  }
  FailurePipe(const FailurePipe&) = delete;  // owns both ends
  FailurePipe& operator=(const FailurePipe&) = delete;

  void close_writing() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  void tell(int error) const { static_cast<void>(!::write(ends_[1], &error, sizeof error)); }
  /// 0 when nothing was told.
  [[nodiscard]] int told() const {
    int error = 0;
    while (::read(ends_[0], &error, sizeof error) < 0 && errno == EINTR) continue;
    return error;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

/// The environment of this process, changed so that no Python imports modules from the current folder.
/// PYTHONSAFEPATH does this from Python 3.11 on. Empty entries of PYTHONPATH mean the current folder and are
/// removed.
std::vector<std::string> child_environment() {
  constexpr std::string_view kPath = "PYTHONPATH=", kSafe = "PYTHONSAFEPATH=";
  std::vector<std::string> out{std::string(kSafe) + "1"};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(kSafe)) continue;
    if (!text.starts_with(kPath)) {
      out.emplace_back(text);
      continue;
    }
    std::string folders;
    std::istringstream list(std::string(text.substr(kPath.size())));
    for (std::string folder; std::getline(list, folder, ':');)
      if (!folder.empty()) folders += (folders.empty() ? "" : ":") + folder;
    if (!folders.empty()) out.push_back(std::string(kPath) + folders);
  }
  return out;
}

/// As execvp and its like take it; refers to `texts`.
std::vector<char*> null_ended(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const auto& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

bool open_as(int number, const char* path, int flags) {
  const int file = ::open(path, flags, 0600);
  return file >= 0 && ::dup2(file, number) >= 0;
}

void stop_ignoring_signals() {
  for (const int ignored : {SIGPIPE, SIGXFSZ}) std::signal(ignored, SIG_DFL);
}

void check_started(int error, const std::string& program) {
  FQ_CHECK(error == 0, "run_program", "'{}' cannot be started: {}: install it, or name another", program,
           std::strerror(error));
}

/// Only what is safe after the fork of a process with threads.
[[noreturn]] void become(char* const* arguments, char* const* environment, const ProgramLimits& limits,
                         pid_t parent, const FailurePipe& failure) {
  constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
  const bool ready = ::setpgid(0, 0) == 0 && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
                     open_as(STDIN_FILENO, limits.input_file.c_str(), O_RDONLY) &&
                     open_as(STDOUT_FILENO, limits.output_file.c_str(), kWrite) &&
                     open_as(STDERR_FILENO, limits.error_file.c_str(), kWrite);
  if (::getppid() != parent) ::_exit(127);  // it ended before the system knew whom to kill
  stop_ignoring_signals();
  if (ready) ::execvpe(arguments[0], arguments, environment);
  failure.tell(errno);
  ::_exit(127);
}

pid_t start_child(const std::vector<std::string>& words, const ProgramLimits& limits) {
  const auto variables = child_environment();
  const auto arguments = null_ended(words), environment = null_ended(variables);
  FailurePipe failure;
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) throw SystemError(fmt::format("[run_program] no process: {}", std::strerror(errno)));
  if (child == 0) become(arguments.data(), environment.data(), limits, parent, failure);
  failure.close_writing();
  const int error = failure.told();
  if (error != 0) ::waitpid(child, nullptr, 0);
  check_started(error, words[0]);
  return child;
}

}  // namespace

ProgramEnd run_program(const std::vector<std::string>& words, const ProgramLimits& limits) {
  const Stopwatch watch;
  const GracefulStop stop;
  const pid_t child = start_child(words, limits);
  ProgramEnd end;
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(child, &status, WNOHANG)) == 0) {
    end.timed_out = limits.seconds > 0 && watch.seconds() > limits.seconds;
    if (end.timed_out || stop_requested()) ::kill(-child, SIGKILL);
    std::this_thread::sleep_for(kLookEvery);
  }
  if (ended < 0) throw SystemError(fmt::format("[run_program] '{}' is lost", words[0]));
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.status = end.signal != 0 ? 128 + end.signal : WEXITSTATUS(status);
  return end;
}

void replace_process(const std::vector<std::string>& words) {
  const auto variables = child_environment();
  const auto arguments = null_ended(words), environment = null_ended(variables);
  stop_ignoring_signals();
  ::execvpe(arguments[0], arguments.data(), environment.data());
  const int error = errno;
  catch_signals();
  check_started(error, words[0]);
  std::abort();
}

}  // namespace fq::cli
