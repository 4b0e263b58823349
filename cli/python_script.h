#pragma once

/// Runs modules of the Python package `fakequant` that is installed with the command, and scripts.

#include <string>
#include <vector>

#include "fakequant/cli/system/child_process.h"

namespace fq::cli {

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
