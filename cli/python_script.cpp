#include "fakequant/cli/python_script.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/system/signals.h"
#include "fakequant/cli/tables/warnings.h"
#include "fakequant/core/detail/check.h"

namespace fq::cli {
namespace {

constexpr std::streamoff kLastWords = 2000;  // bytes of a message

/// The end of what a program said.
std::string last_words(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff bytes = file.tellg();
  file.seekg(std::max<std::streamoff>(0, bytes - kLastWords));
  std::string text = one_line({std::istreambuf_iterator<char>(file), {}});
  text.erase(text.find_last_not_of(' ') + 1);
  const std::size_t end = text.find("] ");
  const bool is_own = text.starts_with("fakequant: [dataset") && end != std::string::npos;
  return is_own ? text.substr(end + 2) : text;  // the caller names its own command
}

/// Runs the module argv[2] of the folder argv[1]. Python puts the current folder first in sys.path for -c and
/// -m, before 3.11 also with PYTHONSAFEPATH: its empty entry is removed before the first import from a file.
constexpr const char* kRunModule =
    "import sys; sys.argv.pop(0); sys.path[:] = [sys.argv.pop(0), *filter(None, sys.path)]; import runpy; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)";

/// Returns the path of `name` in ../share/fakequant of the command.
std::string shared_path(const std::string& command_name, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  const fs::path found = command.parent_path().parent_path() / "share/fakequant" / name;
  if (!fs::exists(found, error))
    throw FileError(
        found.string(), "",
        fmt::format("[{}] {} is missing. Install fakequant again.", command_name, found.string()));
  return found.string();
}

void check_end(const ProgramEnd& end, const std::string& command, const std::string& python,
               const ProgramLimits& limits, const std::string& file) {
  const std::string message = last_words(limits.error_file);
  if (stop_requested()) throw Interrupted(command);
  if (end.timed_out)
    throw BackendError(
        fmt::format("[{}] {} was still running after {} s and was ended: give it longer by "
                    "--timeout (0: any time), or fewer samples",
                    command, python, limits.seconds));
  if (end.signal != 0)
    throw BackendError(fmt::format("[{}] {} was ended by signal {} ({}){}{}", command, python, end.signal,
                                   ::strsignal(end.signal), message.empty() ? "" : ": ", message));
  FQ_CHECK(end.status != 3, command, "{}", message);
  if (end.status == 2) throw FileError(file, "", fmt::format("[{}] {}", command, message));
  if (end.status > 1)
    throw BackendError(fmt::format("[{}] {} ended with status {}: {}", command, python, end.status, message));
}

/// Ends with status 1 if a module of the arguments cannot be found. Modules are not imported.
constexpr const char* kFindModules =
    "import sys; sys.path[:] = filter(None, sys.path); from importlib.util import find_spec; "
    "sys.exit(None in map(find_spec, sys.argv[1:]))";

/// Whether a Python can be started and finds the modules.
bool has_modules(const std::string& python, const std::vector<std::string>& modules) try {
  std::vector<std::string> words{python, "-c", kFindModules};
  words.insert(words.end(), modules.begin(), modules.end());
  return run_program(words, {.output_file = "/dev/null", .error_file = "/dev/null"}).status == 0;
} catch (const ArgumentError&) {
  return false;
}

}  // namespace

std::string find_python(const std::string& named, const std::vector<std::string>& modules) {
  if (!named.empty()) return named;
  const char* of_environment = std::getenv("FAKEQUANT_PYTHON");
  if (of_environment != nullptr && *of_environment != '\0') return of_environment;
  for (const char* python : {"python3", "/usr/bin/python3"})
    if (modules.empty() || has_modules(python, modules)) return python;
  return "python3";
}

std::vector<std::string> module_words(const std::string& command, const std::string& python,
                                      const std::string& module, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{python, "-c", kRunModule, shared_path(command, "python"), module};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

ProgramEnd run_python(const std::string& command, const std::vector<std::string>& words,
                      const ProgramLimits& limits, const std::string& file) {
  ProgramEnd end;
  try {
    end = run_program(words, limits);
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{} by --python or FAKEQUANT_PYTHON", error.what()));
  }
  check_end(end, command, words[0], limits, file);
  return end;
}

}  // namespace fq::cli
