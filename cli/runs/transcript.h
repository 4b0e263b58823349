#pragma once

/// log.txt of a run directory: what the command tells, with the time of each line.

#include <string>
#include <string_view>

namespace fq::cli {

/// "2026-11-25T23:20:06Z"
[[nodiscard]] std::string time_now();

/// From now on `note_line` adds to that file. Throws FileError and SystemError where it cannot be written.
void begin_transcript(const std::string& path);
/// Adds each line of the text, if there is a transcript; what cannot be written is lost. From any thread.
void note_line(std::string_view text) noexcept;
/// No transcript from now on.
void end_transcript() noexcept;

}  // namespace fq::cli
