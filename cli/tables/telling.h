#pragma once

/// How much an Output tells.

namespace fq::cli {

/// With `quiet` nothing on standard output but with --json the result; with `verbose` a line of progress
/// every second where there is no bar.
enum class Telling { quiet, normal, verbose };

/// Of the Output that is made next.
void set_telling(Telling telling) noexcept;
[[nodiscard]] Telling telling() noexcept;

}  // namespace fq::cli
