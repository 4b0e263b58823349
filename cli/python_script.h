#pragma once

/// Work that is done by a Python: scripts beside the command, in a Python that has the packages they need.

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

/// Runs `words`, the first of which is the Python. Throws ArgumentError where it cannot be started or lacks a
/// package (status 3), FileError naming `file` for one that cannot be used (status 2), BackendError where it
/// is ended by a signal, by `limits`, which --timeout sets, or with a status above 1, Interrupted after
/// Ctrl-C; with the end of what it said.
ProgramEnd run_python(const Flags& flags, const std::vector<std::string>& words, const ProgramLimits& limits,
                      const std::string& file);

}  // namespace fq::cli
