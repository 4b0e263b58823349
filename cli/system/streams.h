#pragma once

/// Standard streams, log.txt of a run directory, and warnings of the library.

#include <string>
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

/// "2026-11-25T23:20:06Z"
[[nodiscard]] std::string time_now();

/// From now on `note_line` adds to that file. Throws FileError and SystemError where it cannot be written.
void begin_transcript(const std::string& path);
/// Adds each line of the text, if there is a transcript; what cannot be written is lost. From any thread.
void note_line(std::string_view text) noexcept;
/// No transcript from now on.
void end_transcript() noexcept;

/// Line ends become spaces, other control characters and what is no UTF-8 "\x1b".
[[nodiscard]] std::string one_line(std::string text);

/// Prints warnings and errors of the library from now on, one line each.
void print_warnings();

}  // namespace fq::cli
