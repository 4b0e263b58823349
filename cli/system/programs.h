#pragma once

/// Runs other programs: a child process, a folder for its files, and modules of the Python package.

#include <string>
#include <vector>

namespace fq::cli {

/// Files and time limits of a program.
struct ProgramLimits {
  std::string output_file, error_file;
  double seconds = 0;  ///< 0: no limit
  std::string input_file = "/dev/null";
};

/// How a program ended.
struct ProgramEnd {
  int status = 0;          ///< its exit status, or 128 + `signal`
  int signal = 0;          ///< that ended it; 0 for none
  bool timed_out = false;  ///< killed because its time was up
};

/// Runs a program, found in PATH, without a shell, and waits for it. It and what it starts are a process
/// group of their own, so that Ctrl-C does not reach them; the group is killed after `limits.seconds`,
/// and when stop_requested() is set. The program itself does not outlive this
/// process: the system kills it when this process ends by whatever signal. A Python that runs a script
/// imports nothing from the current folder. With -c or -m it does, before Python 3.11, unless it gets -I.
/// Throws ArgumentError when it cannot be started, naming it.
[[nodiscard]] ProgramEnd run_program(const std::vector<std::string>& words, const ProgramLimits& limits);

/// Replaces this process by a program found in PATH, in the environment of `run_program`. Standard input and
/// output stay, signals have their default action. Throws ArgumentError if the program cannot be started.
[[noreturn]] void replace_process(const std::vector<std::string>& words);

/// Makes a folder of its own where the system keeps such (TMPDIR, or /tmp), and removes it with all that is
/// in it.
class TemporaryFolder {
 public:
  /// Throws SystemError.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;  // one owner removes it
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Returns `named` (--python) or FAKEQUANT_PYTHON if one is given, else the first of python3 and
/// /usr/bin/python3 that has all `modules`, else "python3".
[[nodiscard]] std::string find_python(const std::string& named, const std::vector<std::string>& modules = {});
/// Returns a command line that runs a module of the package with `arguments`, for example
/// "fakequant.engines.onnx". The package is in ../share/fakequant/python of the command. The module imports
/// nothing from the current folder. Throws FileError if the package is missing.
[[nodiscard]] std::vector<std::string> module_words(const std::string& command, const std::string& python,
                                                    const std::string& module,
                                                    const std::vector<std::string>& arguments);

/// Runs `words`. The first of them is the Python. Errors contain the end of its messages. Throws
/// ArgumentError if it cannot be started or lacks a package (status 3), FileError naming `file` if a file
/// cannot be used (status 2), BackendError after a signal, the time of `limits` or another status above 1,
/// and Interrupted after Ctrl-C.
ProgramEnd run_python(const std::string& command, const std::vector<std::string>& words,
                      const ProgramLimits& limits, const std::string& file);

}  // namespace fq::cli
