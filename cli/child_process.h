#pragma once

/// Running another program.

#include <string>
#include <vector>

namespace fq::cli {

/// Runs a program, found in PATH, without a shell, and waits for it; what it prints goes to two files.
/// Returns its exit status, 128 + the signal that ended it. Throws ArgumentError when it cannot be started,
/// naming it.
[[nodiscard]] int run_program(const std::vector<std::string>& words, const std::string& output_file,
                              const std::string& error_file);

}  // namespace fq::cli
