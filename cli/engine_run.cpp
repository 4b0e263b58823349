#include "fakequant/cli/engine_run.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/flags/listed_words.h"
#include "fakequant/cli/python_script.h"
#include "fakequant/core/detail/check.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kMostSeconds = 1e9;

std::vector<std::string> session_options(const Flags& flags) {
  auto found = listed_words(flags.text("session"));
  for (const auto& option : found) {
    const auto at = option.find('=');
    FQ_CHECK(at != std::string::npos && at > 0, "verify",
             "--session is '{}': give KEY=VALUE,.., such as session.disable_quant_qdq=1",
             flags.text("session"));
  }
  return found;
}

/// Levels and options of a session are ONNX Runtime's.
bool is_onnxruntime(const VerifyEngine& engine) { return engine.home == "ort"; }

std::vector<std::string> command_line(const Flags& flags, const VerifyEngine& engine, const EngineHome& home,
                                      const Expected& expected, const TemporaryFolder& folder,
                                      const std::string& report) {
  std::vector<std::string> words{"--json=" + report, "--folder=" + folder.path()};
  for (const char* name : {"tolerance", "code-tolerance", "flip-tolerance", "threads"})
    if (flags.given(name)) words.push_back(fmt::format("--{}={}", name, flags.text(name)));
  if (is_onnxruntime(engine)) {
    if (flags.given("level")) words.push_back("--level=" + flags.text("level"));
    for (const auto& option : session_options(flags)) words.push_back("--session=" + option);
  } else {
    words.push_back("--home=" + home.folder);
    if (!expected.layers.empty()) words.push_back("--layers=" + expected.layers);
  }
  for (const auto& file : expected.folded) words.push_back("--folded=" + file);
  words.insert(words.end(), {"--", flags.required("model")});
  words.insert(words.end(), expected.files.begin(), expected.files.end());
  return module_words(flags.command(), home.python, std::string(engine.module), words);
}

}  // namespace

void add_engine_flags(FlagSet& set) {
  set.value(
         "engines", "FOLDER",
         "where engines are, and are installed on demand (default: FAKEQUANT_ENGINES, or fakequant/engines "
         "in the user's folder for caches)")
      .value("level", "NAME",
             "of optimisation: disabled, basic, extended or all (default: all; basic for FP8 and 4-bit "
             "activations)")
      .value("session", "KEY=VALUE,..",
             "options of the engine's session (default: those that keep the numbers)")
      .value(
          "tolerance", "SHARE",
          "of logits, relative to the largest; 0: the same bits (default: 0 for 8-bit integers, 0.02 where "
          "the "
          "engine computes floats between their codes; 1e-6 for floats, 4-bit weights and weights in blocks; "
          "other engines: the bound that is stated of them)")
      .value("code-tolerance", "SHARE",
             "of codes that may differ (default: 0; 0.001 where the engine computes floats between codes, "
             "and of "
             "openvino)")
      .value("flip-tolerance", "SHARE",
             "of answers that may be others (default: any that --tolerance allows; 0.001 where the engine "
             "computes "
             "floats between codes; of openvino and xnnpack 0, of llama.cpp 0.001, or 0.002 without codes)")
      .value("timeout", "SECONDS", "after which the engine is ended; 0: never", "3600")
      .value(
          "python", "FILE",
          "a Python 3 with onnxruntime, onnx and h5py, or what the engine needs (default: FAKEQUANT_PYTHON, "
          "or python3; other engines are installed)");
}

void check_engine_flags(const Flags& flags) {
  if (flags.given("level"))
    static_cast<void>(flags.choice("level", {"disabled", "basic", "extended", "all"}));
  if (flags.given("tolerance")) static_cast<void>(flags.number("tolerance", 0, 1e6));
  for (const char* name : {"code-tolerance", "flip-tolerance"})
    if (flags.given(name)) static_cast<void>(flags.number(name, 0, 1));
  static_cast<void>(flags.number("timeout", 0, kMostSeconds));
  static_cast<void>(session_options(flags));
}

ordered_json run_engine(const Flags& flags, const VerifyEngine& engine, const EngineHome& home,
                        const Expected& expected, const TemporaryFolder& folder, Output& output) {
  const std::string report = folder.file("counts.json");
  const ProgramLimits limits{folder.file("output"), folder.file("errors"),
                             flags.number("timeout", 0, kMostSeconds)};
  const auto words = command_line(flags, engine, home, expected, folder, report);
  const ProgramEnd end = run_python(flags, words, limits, flags.text("model"));
  auto found = read_engine_report(report, words[0], end.status, expected);
  std::ifstream lines(limits.output_file);
  for (std::string line; std::getline(lines, line);) output.line(line);
  return found;
}

}  // namespace fq::cli
