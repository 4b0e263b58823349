#pragma once

/// Standard streams, log.txt of a run directory, and warnings of the library.

#include <string>
#include <string_view>

namespace fq::cli {

/// Opens /dev/null for closed standard streams, so that a file cannot get their descriptors.
void open_standard_streams();

/// Writes to standard output immediately. After a failure, writes nothing more, and `output_failed` reports
/// the failure.
void put(std::string_view text) noexcept;
/// Returns true if standard output is a terminal. Under Open MPI it is always a terminal, even if mpiexec
/// writes to a file.
[[nodiscard]] bool is_terminal();
/// Returns true if a write to standard output failed (a full disk). A closed pipe (`| head`) is no failure.
[[nodiscard]] bool output_failed() noexcept;

/// Disables `put` and `complain` until `speak`, in all processes of a run except for one.
void silence() noexcept;
void speak() noexcept;

/// Writes one line "fakequant: .." to standard error. Ignores failures.
void complain(std::string_view message) noexcept;

/// Returns "2026-11-25T23:20:06Z".
[[nodiscard]] std::string time_now();

/// Makes `note_line` add to the file. Throws FileError and SystemError if the file cannot be written.
void begin_transcript(const std::string& path);
/// Adds each line of the text to the transcript, if there is one. Ignores failures. Thread-safe.
void note_line(std::string_view text) noexcept;
/// Ends the transcript.
void end_transcript() noexcept;

/// Replaces line ends by spaces. Replaces other control characters and invalid UTF-8 by escapes: "\x1b".
[[nodiscard]] std::string one_line(std::string text);

/// Makes the library print its warnings and errors, one line each.
void print_warnings();

}  // namespace fq::cli
