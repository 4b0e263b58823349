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

/// Levels and options of a session are ONNX Runtime's.
bool is_onnxruntime(const VerifyEngine& engine) { return engine.home == "ort"; }

std::vector<std::string> command_line(const EngineRun& run, const EngineHome& home, const Expected& expected,
                                      const TemporaryFolder& folder, const std::string& report) {
  const EngineOptions& options = run.options;
  std::vector<std::string> words{"--json=" + report, "--folder=" + folder.path()};
  const auto add = [&](const char* name, const auto& value) {
    if (value) words.push_back(fmt::format("--{}={}", name, *value));
  };
  add("tolerance", options.tolerance);
  add("code-tolerance", options.code_tolerance);
  add("flip-tolerance", options.flip_tolerance);
  add("threads", run.threads);
  if (is_onnxruntime(run.engine)) {
    add("level", options.level);
    for (const auto& option : session_options(options.session)) words.push_back("--session=" + option);
  } else {
    words.push_back("--home=" + home.folder);
    if (!expected.layers.empty()) words.push_back("--layers=" + expected.layers);
  }
  for (const auto& file : expected.folded) words.push_back("--folded=" + file);
  words.insert(words.end(), {"--", run.model});
  words.insert(words.end(), expected.files.begin(), expected.files.end());
  return module_words("verify", home.python, std::string(run.engine.module), words);
}

}  // namespace

std::vector<std::string> session_options(const std::string& session) {
  auto found = listed_words(session);
  for (const auto& option : found) {
    const auto at = option.find('=');
    FQ_CHECK(at != std::string::npos && at > 0, "verify",
             "--session is '{}': give KEY=VALUE,.., such as session.disable_quant_qdq=1", session);
  }
  return found;
}

void add_engine_flags(FlagSet& set, EngineOptions& options) {
  set.value(options.home.engines, "engines", "FOLDER",
            "folder of engines, which are installed on demand (default: FAKEQUANT_ENGINES, or "
            "fakequant/engines in the user's folder for caches)")
      .choice(
          options.level, "level", "NAME", {"disabled", "basic", "extended", "all"},
          "level of optimisation: disabled, basic, extended or all (default: all; basic for FP8 and 4-bit "
          "activations)")
      .value(options.session, "session", "KEY=VALUE,..",
             "options of the engine's session (default: those that keep the numbers)")
      .value(options.tolerance, "tolerance", "SHARE", {0, 1e6},
             "largest difference of logits, relative to the largest logit; 0: the same bits (default: 0 for "
             "8-bit integers, 0.02 if the engine computes floats between their codes; 1e-6 for floats, 4-bit "
             "weights and weights in blocks; other engines: their documented bound)")
      .value(options.code_tolerance, "code-tolerance", "SHARE", {0, 1},
             "share of codes that may differ (default: 0; 0.001 if the engine computes floats between codes, "
             "and with openvino)")
      .value(options.flip_tolerance, "flip-tolerance", "SHARE", {0, 1},
             "share of samples whose predicted class may differ (default: any that --tolerance allows; 0.001 "
             "if the engine computes floats between codes; openvino and xnnpack 0, llama.cpp 0.001, or 0.002 "
             "without codes)")
      .value(options.timeout, "timeout", "SECONDS", {0, kMostSeconds}, "time limit of the engine; 0: none")
      .value(options.home.python, "python", "FILE",
             "a Python 3 with onnxruntime, onnx and h5py, or the packages of another engine (default: "
             "FAKEQUANT_PYTHON, or python3; other engines are installed)");
}

ordered_json run_engine(const EngineRun& run, const Expected& expected, const TemporaryFolder& folder,
                        Output& output) {
  const EngineHome home = engine_home(run.options.home, "verify", run.engine.home, folder, output);
  const std::string report = folder.file("counts.json");
  const ProgramLimits limits{folder.file("output"), folder.file("errors"), run.options.timeout};
  const auto words = command_line(run, home, expected, folder, report);
  const ProgramEnd end = run_python("verify", words, limits, run.model);
  auto found = read_engine_report(report, words[0], end.status, expected);
  std::ifstream lines(limits.output_file);
  for (std::string line; std::getline(lines, line);) output.line(line);
  return found;
}

}  // namespace fq::cli
