#include "fakequant/cli/system/programs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/system/process.h"
#include "fakequant/cli/system/streams.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/error.h"

namespace fq::cli {
namespace {

constexpr std::chrono::milliseconds kLookEvery{20};

/// Pipe by which a child reports why it could not start the program. A successful start closes the pipe.
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
  void write_error(int error) const { static_cast<void>(!::write(ends_[1], &error, sizeof error)); }
  /// Returns the error number of the child; 0 if the child reported none.
  [[nodiscard]] int read_error() const {
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

/// Returns pointers to `texts` and a final null, as execvp requires.
std::vector<char*> null_ended(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const auto& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

bool redirect(int number, const char* path, int flags) {
  const int file = ::open(path, flags, 0600);
  return file >= 0 && ::dup2(file, number) >= 0;
}

// Ignored signals stay ignored after exec. The program expects their default action.
void stop_ignoring_signals() {
  for (const int ignored : {SIGPIPE, SIGXFSZ}) std::signal(ignored, SIG_DFL);
}

void check_started(int error, const std::string& program) {
  FQ_CHECK(error == 0, "run_program", "'{}' cannot be started: {}: install it, or name another", program,
           std::strerror(error));
}

/// Replaces a forked child by the program. Calls only async-signal-safe functions, because the parent has
/// threads.
[[noreturn]] void become(char* const* arguments, char* const* environment, const ProgramLimits& limits,
                         pid_t parent, const FailurePipe& failure) {
  constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
  const bool ready = ::setpgid(0, 0) == 0 && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
                     redirect(STDIN_FILENO, limits.input_file.c_str(), O_RDONLY) &&
                     redirect(STDOUT_FILENO, limits.output_file.c_str(), kWrite) &&
                     redirect(STDERR_FILENO, limits.error_file.c_str(), kWrite);
  if (::getppid() != parent) ::_exit(127);  // the parent ended before the prctl call
  stop_ignoring_signals();
  if (ready) ::execvpe(arguments[0], arguments, environment);
  failure.write_error(errno);
  ::_exit(127);
}

// All memory is allocated before the fork: the child may only call async-signal-safe functions.
pid_t start_child(const std::vector<std::string>& words, const ProgramLimits& limits) {
  const auto variables = child_environment();
  const auto arguments = null_ended(words), environment = null_ended(variables);
  FailurePipe failure;
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) throw SystemError(fmt::format("[run_program] no process: {}", std::strerror(errno)));
  if (child == 0) become(arguments.data(), environment.data(), limits, parent, failure);
  // The read ends when exec closes the pipe of the child (O_CLOEXEC), or when the child writes its error. An
  // open end of the parent would keep it waiting.
  failure.close_writing();
  const int error = failure.read_error();
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
    // A negative number is the process group, which also has the program's own children.
    if (end.timed_out || stop_requested()) ::kill(-child, SIGKILL);
    // Polling, because waitpid has no time limit and the stop may come from another thread.
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
  // execvpe returned, so this process continues and needs its handlers again.
  catch_signals();
  check_started(error, words[0]);
  std::abort();
}

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  const auto parent = std::filesystem::temp_directory_path(error);
  path_ = ((error ? "/tmp" : parent) / "fakequant.XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr)
    throw SystemError(fmt::format("[fakequant] no folder can be made in {}: {}: name another by TMPDIR",
                                  std::filesystem::path(path_).parent_path().string(), std::strerror(errno)));
}

TemporaryFolder::~TemporaryFolder() {
  try {
    std::filesystem::remove_all(path_);
  } catch (const std::exception&) {  // the folder stays; the system clears temporary folders
  }
}

namespace {

constexpr std::streamoff kLastWords = 2000;  // bytes of a message

/// Returns the end of a program's messages.
std::string last_words(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff bytes = file.tellg();
  // Python prints the cause at the end of a traceback.
  file.seekg(std::max<std::streamoff>(0, bytes - kLastWords));
  std::string text = one_line({std::istreambuf_iterator<char>(file), {}});
  text.erase(text.find_last_not_of(' ') + 1);
  const std::size_t end = text.find("] ");
  // Modules of the package report "fakequant: [command] message". Only the message is repeated.
  const bool is_own = text.starts_with("fakequant: [dataset") && end != std::string::npos;
  return is_own ? text.substr(end + 2) : text;  // the caller names its own command
}

/// Runs the module argv[2] of the folder argv[1]. For -c and -m, Python puts the current folder first in
/// sys.path, before 3.11 even with PYTHONSAFEPATH. Its empty entry is removed before the first import from a
/// file.
constexpr const char* kRunModule =
    "import sys; sys.argv.pop(0); sys.path[:] = [sys.argv.pop(0), *filter(None, sys.path)]; import runpy; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)";

/// Returns the path of `name` in ../share/fakequant of the command.
std::string shared_path(const std::string& command_name, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  const fs::path found = command.parent_path().parent_path() / "share/fakequant" / name;
  if (!fs::exists(found, error))
    throw FileError(
        found.string(), "",
        fmt::format("[{}] {} is missing. Install fakequant again.", command_name, found.string()));
  return found.string();
}

void check_end(const ProgramEnd& end, const std::string& command, const std::string& python,
               const ProgramLimits& limits, const std::string& file) {
  const std::string message = last_words(limits.error_file);
  if (stop_requested()) throw Interrupted(command);
  if (end.timed_out)
    throw BackendError(
        fmt::format("[{}] {} was still running after {} s and was ended. Use a larger --timeout "
                    "(0: no limit), or fewer samples",
                    command, python, limits.seconds));
  if (end.signal != 0)
    throw BackendError(fmt::format("[{}] {} was ended by signal {} ({}){}{}", command, python, end.signal,
                                   ::strsignal(end.signal), message.empty() ? "" : ": ", message));
  // Exit statuses of the package's modules: 2 a file cannot be used, 3 a package is missing, 0 and 1 a
  // verdict.
  FQ_CHECK(end.status != 3, command, "{}", message);
  if (end.status == 2) throw FileError(file, "", fmt::format("[{}] {}", command, message));
  if (end.status > 1)
    throw BackendError(fmt::format("[{}] {} ended with status {}: {}", command, python, end.status, message));
}

/// Exits with status 1 if a module of the arguments is missing. Does not import modules.
constexpr const char* kFindModules =
    "import sys; sys.path[:] = filter(None, sys.path); from importlib.util import find_spec; "
    "sys.exit(None in map(find_spec, sys.argv[1:]))";

/// Whether a Python can be started and finds the modules.
bool has_modules(const std::string& python, const std::vector<std::string>& modules) try {
  std::vector<std::string> words{python, "-c", kFindModules};
  words.insert(words.end(), modules.begin(), modules.end());
  return run_program(words, {.output_file = "/dev/null", .error_file = "/dev/null"}).status == 0;
} catch (const ArgumentError&) {
  return false;
}

}  // namespace

std::string find_python(const std::string& named, const std::vector<std::string>& modules) {
  if (!named.empty()) return named;
  const char* of_environment = std::getenv("FAKEQUANT_PYTHON");
  if (of_environment != nullptr && *of_environment != '\0') return of_environment;
  // An activated virtual environment without the packages often hides a system Python that has them.
  for (const char* python : {"python3", "/usr/bin/python3"})
    if (modules.empty() || has_modules(python, modules)) return python;
  return "python3";
}

std::vector<std::string> module_words(const std::string& command, const std::string& python,
                                      const std::string& module, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{python, "-c", kRunModule, shared_path(command, "python"), module};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

ProgramEnd run_python(const std::string& command, const std::vector<std::string>& words,
                      const ProgramLimits& limits, const std::string& file) {
  ProgramEnd end;
  try {
    end = run_program(words, limits);
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{} by --python or FAKEQUANT_PYTHON", error.what()));
  }
  check_end(end, command, words[0], limits, file);
  return end;
}

}  // namespace fq::cli
