#include "fakequant/cli/engines/engines.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/system/process.h"
#include "fakequant/cli/system/programs.h"
#include "fakequant/cli/system/streams.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

// Columns as in VerifyEngine: name, suffix, format, module, home, target, codes, layers.
constexpr std::array<VerifyEngine, 5> kEngines{{
    {"ort", ".onnx", "onnx", "fakequant.engines.onnx", "ort", "", true, false},
    {"ort_dynamic", ".onnx", "onnx", "fakequant.engines.onnx", "ort", "ort_dynamic", true, false},
    {"xnnpack", ".pte", "executorch", "fakequant.engines.executorch", "xnnpack", "", false, true},
    {"llama.cpp", ".gguf", "gguf", "fakequant.engines.gguf", "llama.cpp", "", false, true},
    {"openvino", ".onnx", "onnx", "fakequant.engines.openvino", "openvino", "", true, false},
}};

}  // namespace

std::span<const VerifyEngine> verify_engines() { return kEngines; }

std::vector<std::string> verify_engine_names() {
  std::vector<std::string> names;
  for (const VerifyEngine& engine : kEngines) names.emplace_back(engine.name);
  names.emplace_back("all");
  return names;
}

std::vector<const VerifyEngine*> find_engines(const std::string& name, const std::string& model) {
  std::vector<const VerifyEngine*> found;
  for (const VerifyEngine& engine : kEngines) {
    const bool reads =
        model.ends_with(engine.suffix) && engine.name != "ort_dynamic";  // "all" runs this file in ort
    if (name == "all" ? reads : name == engine.name) found.push_back(&engine);
  }
  FQ_CHECK(
      !found.empty(), "verify",
      "--engine all: no engine runs {} by its name: use a file whose name ends with .onnx, .gguf or .pte",
      model);
  return found;
}

void check_target(const VerifyEngine& engine, const Network& network) {
  if (engine.target.empty()) return;
  const Target found = model_target(network.module());
  FQ_CHECK(name(found) == engine.target, "verify",
           "--engine {}: the checkpoint is quantized for {}: calibrate and train with --preset {}, or leave "
           "out --engine",
           engine.name, name(found), target_profile(target_named(engine.target)).presets);
}

namespace {

constexpr double kPackageSeconds = 300;       // imports, from a cold disk
constexpr double kInstallSeconds = 4 * 3600;  // enough to build llama.cpp on one slow core

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Returns true if the engine is not installed on demand: a Python is named, or the engine is ONNX Runtime
/// without a folder of engines.
bool is_named(const EngineHomeOptions& options, std::string_view name) {
  if (!options.python.empty() || !variable("FAKEQUANT_PYTHON").empty()) return true;
  return name == "ort" && options.engines.empty() && variable("FAKEQUANT_ENGINES").empty();
}

// The last lines say why an installation failed, as one line of text.
std::string message_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text = one_line({std::istreambuf_iterator<char>(file), {}});
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string engines_folder(const EngineHomeOptions& options) {
  namespace fs = std::filesystem;
  if (!options.engines.empty()) return fs::absolute(options.engines).string();
  if (const auto named = variable("FAKEQUANT_ENGINES"); !named.empty()) return fs::absolute(named).string();
  // XDG base directories: $XDG_CACHE_HOME, by default ~/.cache.
  const std::string cache = variable("XDG_CACHE_HOME"), home = variable("HOME");
  return (cache.empty() ? fs::path(home.empty() ? "/tmp" : home) / ".cache" : fs::path(cache)) /
         "fakequant/engines";
}

}  // namespace

EngineHome engine_home(const EngineHomeOptions& options, const std::string& command, std::string_view name,
                       const TemporaryFolder& folder, Output& output) {
  // The script `install` returns at once if the engine is there, so it is called every time.
  const std::string home = engines_folder(options), own = fmt::format("{}/{}", home, name);
  const std::string python = find_python(options.python);
  if (is_named(options, name)) return {python, own};
  std::error_code none;
  if (!std::filesystem::exists(own, none))
    output.line(fmt::format("{} is installed into {}, once{}", name, own,
                            name == "llama.cpp" ? ": it is built, which takes minutes" : ""));
  const ProgramLimits limits{folder.file("installed"), folder.file("install_errors"), kInstallSeconds};
  const ProgramEnd end = run_program(
      module_words(command, python, "fakequant.engines.install", {std::string(name), home}), limits);
  if (stop_requested()) throw Interrupted(command);
  if (end.status != 0)
    throw BackendError(fmt::format(
        "[{}] engine {}: {}{}. Name a Python that has it by --python, or another folder by --engines",
        command, name, message_text(limits.output_file), message_text(limits.error_file)));
  return {own + "/bin/python", own};
}

void check_packages(const EngineHomeOptions& options, const VerifyEngine& engine) {
  static std::set<std::pair<std::string, std::string_view>>
      complete;  // caches the result for later phases of a recipe
  const std::pair key{find_python(options.python), engine.module};
  // Engines that are installed on demand bring their packages.
  if (!is_named(options, engine.home) || complete.contains(key)) return;
  const TemporaryFolder folder;
  (void)run_python("verify", module_words("verify", key.first, std::string(engine.module), {"--packages"}),
                   {folder.file("said"), folder.file("errors"), kPackageSeconds}, key.first);
  complete.insert(key);
}

}  // namespace fq::cli
