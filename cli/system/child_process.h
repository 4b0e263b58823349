#pragma once

/// Running another program.

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

}  // namespace fq::cli
