#pragma once

/// Other programs: child processes, temporary folders for their files, and modules of the Python package.

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
  int signal = 0;          ///< signal that ended it; 0: ended by itself
  bool timed_out = false;  ///< killed after the time limit
};

/// Runs a program, found in PATH, without a shell, and waits for its end. The program and its children form a
/// process group, so that Ctrl-C does not reach them. The group is killed after `limits.seconds`, and when
/// stop_requested() is set. The system kills the program when this process ends. A Python that runs a script
/// imports nothing from the current folder. Before Python 3.11, options -c and -m require -I for this. Throws
/// ArgumentError naming the program if it cannot be started.
[[nodiscard]] ProgramEnd run_program(const std::vector<std::string>& words, const ProgramLimits& limits);

/// Replaces this process by a program found in PATH, with the environment of `run_program`. Standard input
/// and output stay, and signals have their default action. Throws ArgumentError if the program cannot be
/// started.
[[noreturn]] void replace_process(const std::vector<std::string>& words);

/// Creates a temporary folder (in TMPDIR, or /tmp), and removes it with its content.
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

/// Returns `named` (--python) or FAKEQUANT_PYTHON if one is given. Otherwise returns the first of python3 and
/// /usr/bin/python3 that has all `modules`, or "python3" if both lack one.
[[nodiscard]] std::string find_python(const std::string& named, const std::vector<std::string>& modules = {});
/// Returns a command line that runs a module of the package with `arguments`, for example
/// "fakequant.engines.onnx". The package is in ../share/fakequant/python of the command. The module imports
/// nothing from the current folder. Throws FileError if the package is missing.
[[nodiscard]] std::vector<std::string> module_words(const std::string& command, const std::string& python,
                                                    const std::string& module,
                                                    const std::vector<std::string>& arguments);

/// Runs `words`. The first word is the Python. Errors contain the end of its messages. Throws ArgumentError
/// if it cannot be started or lacks a package (status 3), and FileError naming `file` if a file cannot be
/// used (status 2). Throws BackendError after a signal, the time limit or another status above 1, and
/// Interrupted after Ctrl-C.
ProgramEnd run_python(const std::string& command, const std::vector<std::string>& words,
                      const ProgramLimits& limits, const std::string& file);

}  // namespace fq::cli
