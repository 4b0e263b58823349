#pragma once

/// Output of the command: a progress bar on a terminal, plain lines in a pipe, and with --json one JSON
/// object per line. File names and names in files may contain any bytes. Control characters and invalid UTF-8
/// are printed as "\x1b", in JSON as U+001B and U+FFFD.

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fq::cli {

/// Progress of a command.
struct Progress {
  std::string label;                 ///< "train 3/40"
  std::int64_t done = 0, total = 0;  ///< both in the same unit
  double loss = 0, accuracy = 0;     ///< accuracy in 0 .. 1; negative: not shown
  double samples_per_second = 0;
  double seconds_left = 0;
  std::string samples = "samples";  ///< unit of samples_per_second
};

/// Amount of output. `quiet`: no output, except for the result of --json. `verbose`: a line of progress every
/// second without a bar.
enum class Telling { quiet, normal, verbose };

class Output {
 public:
  explicit Output(bool json, Telling telling = Telling::normal);
  ~Output();
  Output(const Output&) = delete;  // one writer of standard output
  Output& operator=(const Output&) = delete;

  [[nodiscard]] bool json() const noexcept { return json_; }
  /// Prints plain text; nothing with --json.
  void line(std::string_view text);
  /// Prints `text` for people (nothing if it is empty), or `object` with --json.
  void record(std::string_view text, const nlohmann::ordered_json& object);
  /// Updates the progress bar, on a terminal only, at most ten times per second.
  void progress(const Progress& state);
  /// Throws SystemError if standard output could not be written completely (a full disk).
  void flush();

 private:
  void clear_bar();

  bool json_, terminal_, bar_shown_ = false;
  Telling telling_;
  std::chrono::steady_clock::time_point last_bar_{};
};

/// Returns the text of a JSON file. Replaces invalid UTF-8, for example in paths, by U+FFFD.
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& object);
/// Returns "0.8 s", "42 s", "3 min 05 s".
[[nodiscard]] std::string duration(double seconds);
/// Returns "12.3 MB", with 10^6 bytes per megabyte.
[[nodiscard]] std::string megabytes(std::int64_t bytes);
/// Returns "98.61 % ± 0.62": a share of `count` trials with its binomial standard error.
[[nodiscard]] std::string percent(double share, std::int64_t count);

/// Returns "f1 0.9312, auc 0.9876".
[[nodiscard]] std::string metrics_text(const std::vector<std::pair<std::string, double>>& metrics);

/// Measures the seconds since its construction.
class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace fq::cli
