#pragma once

/// What the library logs, on standard error.

#include <string>

namespace fq::cli {

/// Line ends become spaces, other control characters and what is no UTF-8 "\x1b".
[[nodiscard]] std::string one_line(std::string text);

/// Prints warnings and errors of the library from now on, one line each.
void print_warnings();

}  // namespace fq::cli
