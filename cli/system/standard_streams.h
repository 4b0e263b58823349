#pragma once

/// Standard input, output and errors of the process.

#include <string_view>

namespace fq::cli {

/// Opens /dev/null in place of those that are closed: no file that is opened later takes their number.
void open_standard_streams();

/// Writes to standard output at once. What fails is kept for `output_failed`, and nothing is written after
/// it.
void put(std::string_view text) noexcept;
/// Whether people see on a terminal what is put. Open MPI's mpiexec gives its processes one of its own, whose
/// text goes to where mpiexec's goes, a file maybe: that counts.
[[nodiscard]] bool on_terminal();
/// Whether standard output did not take everything (a full disk). A reader who has gone (`| head`) had
/// enough: that is no failure.
[[nodiscard]] bool output_failed() noexcept;

/// Nothing is written by `put` and `complain` until `speak`: for all processes of a run but one.
void silence() noexcept;
void speak() noexcept;

/// "fakequant: .." on standard error, one line; what cannot be written there is lost.
void complain(std::string_view message) noexcept;

}  // namespace fq::cli
