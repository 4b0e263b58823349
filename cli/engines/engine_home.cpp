#include "fakequant/cli/engines/engine_home.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/python_script.h"
#include "fakequant/cli/system/child_process.h"
#include "fakequant/cli/system/signals.h"
#include "fakequant/cli/tables/warnings.h"
#include "fakequant/core/detail/check.h"

namespace fq::cli {
namespace {

constexpr double kPackageSeconds = 300;       // imports, from a cold disk
constexpr double kInstallSeconds = 4 * 3600;  // building llama.cpp on one slow core takes a quarter of one

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Whether there is a Python that has the engine, or is to have it.
bool is_named(const Flags& flags, std::string_view name) {
  if (flags.given("python") || !variable("FAKEQUANT_PYTHON").empty()) return true;
  return name == "ort" && !flags.given("engines") && variable("FAKEQUANT_ENGINES").empty();
}

std::string said(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text = one_line({std::istreambuf_iterator<char>(file), {}});
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace

std::string engines_folder(const Flags& flags) {
  namespace fs = std::filesystem;
  if (flags.given("engines")) return fs::absolute(flags.text("engines")).string();
  if (const auto named = variable("FAKEQUANT_ENGINES"); !named.empty()) return fs::absolute(named).string();
  const std::string cache = variable("XDG_CACHE_HOME"), home = variable("HOME");
  return (cache.empty() ? fs::path(home.empty() ? "/tmp" : home) / ".cache" : fs::path(cache)) /
         "fakequant/engines";
}

EngineHome engine_home(const Flags& flags, std::string_view name, const TemporaryFolder& folder,
                       Output& output) {
  const std::string home = engines_folder(flags), own = fmt::format("{}/{}", home, name);
  if (is_named(flags, name)) return {python_of(flags), own};
  std::error_code none;
  if (!std::filesystem::exists(own, none))
    output.line(fmt::format("{} is installed into {}, once{}", name, own,
                            name == "llama.cpp" ? ": it is built, which takes minutes" : ""));
  const ProgramLimits limits{folder.file("installed"), folder.file("install_errors"), kInstallSeconds};
  const ProgramEnd end = run_program(
      module_words(flags.command(), python_of(flags), "fakequant.engines.install", {std::string(name), home}),
      limits);
  if (stop_requested()) throw Interrupted(flags.command());
  if (end.status != 0)
    throw BackendError(
        fmt::format("[{}] engine {}: {}{}. Name a Python that has it by --python, or another folder by --engines",
                    flags.command(), name, said(limits.output_file), said(limits.error_file)));
  return {own + "/bin/python", own};
}

void check_packages(const Flags& flags, const VerifyEngine& engine) {
  static std::set<std::pair<std::string, std::string_view>> complete;  // several phases of a recipe may verify
  const std::pair key{python_of(flags), engine.module};
  if (!is_named(flags, engine.home) || complete.contains(key)) return;
  const TemporaryFolder folder;
  (void)run_python_module(flags, std::string(engine.module), {"--packages"},
                          {folder.file("said"), folder.file("errors"), kPackageSeconds}, key.first);
  complete.insert(key);
}

}  // namespace fq::cli
