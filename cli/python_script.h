#pragma once

/// Runs modules of the Python package `fakequant` that is installed with the command, and scripts.

#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/system/child_process.h"

namespace fq::cli {

/// --python, else FAKEQUANT_PYTHON, else "python3".
[[nodiscard]] std::string python_of(const Flags& flags);
/// Beside the command as installed and as built: ../share/fakequant/scripts. Throws FileError where it is
/// not.
[[nodiscard]] std::string script_path(const std::string& command, const std::string& name);

/// Returns a command line that runs a module of the package, such as "fakequant.engines.onnx", with
/// `arguments`. The package is the one beside the command: ../share/fakequant/python as installed and as
/// built. The module imports nothing from the current folder. Throws FileError if there is no such folder.
[[nodiscard]] std::vector<std::string> module_words(const std::string& command, const std::string& python,
                                                    const std::string& module,
                                                    const std::vector<std::string>& arguments);

/// Runs `words`, the first of which is the Python. Throws ArgumentError where it cannot be started or lacks a
/// package (status 3), FileError naming `file` for one that cannot be used (status 2), BackendError where it
/// is ended by a signal, by `limits`, which --timeout sets, or with a status above 1, Interrupted after
/// Ctrl-C; with the end of what it said.
ProgramEnd run_python(const Flags& flags, const std::vector<std::string>& words, const ProgramLimits& limits,
                      const std::string& file);
/// Runs a module of the package in `python_of(flags)`, with `arguments`. Throws as `run_python` does.
ProgramEnd run_python_module(const Flags& flags, const std::string& module,
                             const std::vector<std::string>& arguments, const ProgramLimits& limits,
                             const std::string& file);

}  // namespace fq::cli
