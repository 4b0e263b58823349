#include "fakequant/cli/tables/output.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/system/streams.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/error.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr int bar_cells = 24;

std::string bar(const Progress& state) {
  const double share = state.total > 0 ? double(state.done) / double(state.total) : 0.0;
  const int full = std::clamp(int(share * bar_cells), 0, bar_cells);
  std::string text = fmt::format("{} [{:#<{}}{:.<{}}]", state.label, "", full, "", bar_cells - full);
  // Evaluations have neither loss nor accuracy in their progress.
  if (state.accuracy >= 0 || state.loss != 0) text += fmt::format(" loss {:.4f}", state.loss);
  if (state.accuracy >= 0) text += fmt::format(" accuracy {:.2f} %", 100 * state.accuracy);
  text += fmt::format(" {:.0f} {}/s, {} left", state.samples_per_second, state.samples,
                      duration(state.seconds_left));
  return text;
}

}  // namespace

Output::Output(bool json, Telling telling)
    : json_(json), terminal_(!json && telling != Telling::quiet && is_terminal()), telling_(telling) {}

Output::~Output() { clear_bar(); }

// The transcript gets every line, also with --quiet and --json.
void Output::line(std::string_view text) {
  note_line(text);
  if (json_ || telling_ == Telling::quiet) return;
  clear_bar();
  put(fmt::format("{}\n", fq::detail::printable(text)));
}

void Output::record(std::string_view text, const nlohmann::ordered_json& object) {
  if (!text.empty()) line(text);
  const bool is_result = object.value("event", std::string()) == "result";
  if (!json_ || (telling_ == Telling::quiet && !is_result)) return;
  // ASCII only: strings may have any bytes, and readers of a pipe may assume another encoding.
  put(object.dump(-1, ' ', true, ordered_json::error_handler_t::replace) + "\n");
}

void Output::progress(const Progress& state) {
  const auto now = std::chrono::steady_clock::now();
  // A bar needs a terminal. With --verbose a log gets a line per second instead.
  const bool lines = !terminal_ && telling_ == Telling::verbose && !json_;
  if (!(terminal_ || lines) || now - last_bar_ < std::chrono::milliseconds(lines ? 1000 : 100)) return;
  last_bar_ = now;
  if (lines) return put(fq::detail::printable(bar(state)) + "\n");
  bar_shown_ = true;
  // Return to the start of the line and erase it: the bar replaces itself.
  put("\r\033[K" + fq::detail::printable(bar(state)));
}

void Output::flush() {
  clear_bar();
  // A full disk must not look like success.
  if (output_failed()) throw SystemError("[fakequant] standard output cannot be written: is the disk full?");
}

void Output::clear_bar() {
  if (bar_shown_) put("\r\033[K");
  bar_shown_ = false;
}

std::string json_text(const nlohmann::ordered_json& object) {
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string duration(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", std::max(seconds, 0.0));
  const auto whole = std::int64_t(std::lround(std::min(seconds, 1e9)));
  if (whole < 60) return fmt::format("{} s", whole);
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

std::string megabytes(std::int64_t bytes) { return fmt::format("{:.1f} MB", double(bytes) * 1e-6); }

std::string percent(double share, std::int64_t count) {
  // Standard error of a proportion, sqrt(p (1 - p) / n).
  const double error = count > 0 ? std::sqrt(share * (1 - share) / double(count)) : 0.0;
  return fmt::format("{:.2f} % ± {:.2f}", 100 * share, 100 * error);
}

std::string metrics_text(const std::vector<std::pair<std::string, double>>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    const bool share = name == "accuracy" || name == "top5";
    text += (text.empty() ? "" : ", ") +
            (share ? fmt::format("{} {:.2f} %", name, 100 * value) : fmt::format("{} {:.4f}", name, value));
  }
  return text;
}

}  // namespace fq::cli
