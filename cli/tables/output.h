#pragma once

/// Output: everything that the command prints. On a terminal a progress bar, in a pipe plain lines, with
/// --json one JSON object a line on standard output. Names from files and of files may hold anything: control
/// characters and bytes that are no UTF-8 are printed as "\x1b", in JSON as U+001B and U+FFFD.

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fq::cli {

/// Where a command is.
struct Progress {
  std::string label;                 ///< "train 3/40"
  std::int64_t done = 0, total = 0;  ///< of the same unit
  double loss = 0, accuracy = 0;     ///< accuracy in 0 .. 1; negative: not shown
  double samples_per_second = 0;
  double seconds_left = 0;
  std::string samples = "samples";  ///< what has that many a second
};

/// How much is told: with `quiet` nothing on standard output but with --json the result; with `verbose` a
/// line of progress every second where there is no bar.
enum class Telling { quiet, normal, verbose };

class Output {
 public:
  explicit Output(bool json, Telling telling = Telling::normal);
  ~Output();
  Output(const Output&) = delete;  // one writer of standard output
  Output& operator=(const Output&) = delete;

  [[nodiscard]] bool json() const noexcept { return json_; }
  /// Plain text; nothing with --json.
  void line(std::string_view text);
  /// A fact for both readers: `text` for people (nothing when empty), `object` with --json.
  void record(std::string_view text, const nlohmann::ordered_json& object);
  /// The bar, on a terminal only, at most ten times a second.
  void progress(const Progress& state);
  /// Throws SystemError when standard output took not everything (a full disk).
  void flush();

 private:
  void clear_bar();

  bool json_, terminal_, bar_shown_ = false;
  Telling telling_;
  std::chrono::steady_clock::time_point last_bar_{};
};

/// For a file: text of other encodings, such as paths, with U+FFFD for what is not UTF-8.
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& object);
/// "0.8 s", "42 s", "3 min 05 s".
[[nodiscard]] std::string duration(double seconds);
/// "12.3 MB" of 10^6 bytes.
[[nodiscard]] std::string megabytes(std::int64_t bytes);
/// "98.61 % ± 0.62": a share of `count` trials with its binomial standard error.
[[nodiscard]] std::string percent(double share, std::int64_t count);

/// "f1 0.9312, auc 0.9876".
[[nodiscard]] std::string metrics_text(const std::vector<std::pair<std::string, double>>& metrics);

/// Seconds since it was made.
class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace fq::cli
