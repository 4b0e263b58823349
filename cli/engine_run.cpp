#include "fakequant/cli/engine_run.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/system/child_process.h"
#include "fakequant/cli/system/signals.h"
#include "fakequant/cli/tables/warnings.h"
#include "fakequant/core/detail/check.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::streamoff kLastWords = 2000;  // bytes of a message
constexpr double kMostSeconds = 1e9;

/// Beside the command as installed and as built: ../share/fakequant/scripts.
std::string script_path() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  const fs::path script = command.parent_path().parent_path() / "share/fakequant/scripts/verify_onnx.py";
  if (!fs::exists(script, error))
    throw FileError(script.string(), "",
                    fmt::format("[verify] {} is not there: install fakequant whole", script.string()));
  return script.string();
}

std::string python_of(const Flags& flags) {
  if (flags.given("python")) return flags.text("python");
  const char* named = std::getenv("FAKEQUANT_PYTHON");
  return named == nullptr || *named == '\0' ? "python3" : named;
}

std::vector<std::string> session_options(const Flags& flags) {
  std::vector<std::string> found;
  std::istringstream options(flags.text("session"));
  for (std::string option; std::getline(options, option, ',');) {
    const auto at = option.find('=');
    FQ_CHECK(at != std::string::npos && at > 0, "verify",
             "--session is '{}': give KEY=VALUE,.., such as session.disable_quant_qdq=1",
             flags.text("session"));
    found.push_back(option);
  }
  return found;
}

std::vector<std::string> command_line(const Flags& flags, const Expected& expected,
                                      const TemporaryFolder& folder, const std::string& report) {
  std::vector<std::string> words{python_of(flags), script_path(), "--json=" + report,
                                 "--folder=" + folder.path()};
  for (const char* name : {"level", "tolerance", "code-tolerance", "threads"})
    if (flags.given(name)) words.push_back(fmt::format("--{}={}", name, flags.text(name)));
  for (const auto& option : session_options(flags)) words.push_back("--session=" + option);
  for (const auto& file : expected.folded) words.push_back("--folded=" + file);
  words.insert(words.end(), {"--", flags.required("model")});
  words.insert(words.end(), expected.files.begin(), expected.files.end());
  return words;
}

/// The end of what a program said.
std::string last_words(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff bytes = file.tellg();
  file.seekg(std::max<std::streamoff>(0, bytes - kLastWords));
  std::string text = one_line({std::istreambuf_iterator<char>(file), {}});
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

void check_end(const ProgramEnd& end, const Flags& flags, const std::string& errors) {
  const std::string python = python_of(flags), message = last_words(errors);
  if (stop_requested()) throw Interrupted("verify");
  if (end.timed_out)
    throw BackendError(
        fmt::format("[verify] {} was still running after {} s and was ended: give it longer by "
                    "--timeout (0: any time), or fewer samples",
                    python, flags.text("timeout")));
  if (end.signal != 0)
    throw BackendError(fmt::format("[verify] {} was ended by signal {} ({}){}{}", python, end.signal,
                                   ::strsignal(end.signal), message.empty() ? "" : ": ", message));
  FQ_CHECK(end.status != 3, "verify", "{}", message);
  if (end.status == 2) throw FileError(flags.text("model"), "", "[verify] " + message);
  if (end.status > 1)
    throw BackendError(fmt::format("[verify] {} ended with status {}: {}", python, end.status, message));
}

ProgramEnd run_python(const std::vector<std::string>& words, const ProgramLimits& limits) try {
  return run_program(words, limits);
} catch (const ArgumentError& error) {
  throw ArgumentError(fmt::format("{} by --python or FAKEQUANT_PYTHON", error.what()));
}

}  // namespace

void add_engine_flags(FlagSet& set) {
  set.value("level", "NAME",
            "of optimisation: disabled, basic, extended or all (default: all; basic for FP8 and 4-bit "
            "activations)")
      .value("session", "KEY=VALUE,..",
             "options of the engine's session (default: those that keep the numbers)")
      .value("tolerance", "SHARE",
             "of logits, relative to the largest; 0: the same bits (default: 0 for 8-bit integers; 1e-6 for "
             "floats, 4-bit weights and weights in blocks)")
      .value("code-tolerance", "SHARE", "of codes that may differ", "0")
      .value("timeout", "SECONDS", "after which the engine is ended; 0: never", "3600")
      .value("python", "FILE",
             "a Python 3 with onnxruntime, onnx and h5py (default: FAKEQUANT_PYTHON, or python3)");
}

void check_engine_flags(const Flags& flags) {
  if (flags.given("level"))
    static_cast<void>(flags.choice("level", {"disabled", "basic", "extended", "all"}));
  if (flags.given("tolerance")) static_cast<void>(flags.number("tolerance", 0, 1e6));
  static_cast<void>(flags.number("code-tolerance", 0, 1));
  static_cast<void>(flags.number("timeout", 0, kMostSeconds));
  static_cast<void>(session_options(flags));
}

ordered_json run_engine(const Flags& flags, const Expected& expected, const TemporaryFolder& folder,
                        Output& output) {
  const std::string report = folder.file("counts.json");
  const ProgramLimits limits{folder.file("output"), folder.file("errors"),
                             flags.number("timeout", 0, kMostSeconds)};
  const auto words = command_line(flags, expected, folder, report);
  const ProgramEnd end = run_python(words, limits);
  check_end(end, flags, limits.error_file);
  auto found = read_engine_report(report, words[0], end.status, expected);
  std::ifstream lines(limits.output_file);
  for (std::string line; std::getline(lines, line);) output.line(line);
  return found;
}

}  // namespace fq::cli
