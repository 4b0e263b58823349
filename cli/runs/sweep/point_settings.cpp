#include "fakequant/cli/runs/sweep/point_settings.h"

#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/recipe.h"
#include "fakequant/cli/runs/run_contents.h"
#include "fakequant/core/io/detail/crc32c.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kPoint = "<point>";  // the folder of one, in its settings
constexpr std::size_t kPart = std::size_t{1} << 20;

/// Of each file once, however many points read it.
class FileMarks {
 public:
  const ordered_json& of(const std::string& path) {
    auto& mark = marks_[path];
    if (mark.is_null()) mark = read(path);
    return mark;
  }

 private:
  static ordered_json read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> part(kPart);
    std::uint32_t sum = 0;
    std::int64_t bytes = 0;
    while (file.read(part.data(), std::streamsize(part.size())), file.gcount() > 0) {
      sum = crc32c(part.data(), std::size_t(file.gcount()), sum);
      bytes += file.gcount();
    }
    return {{"bytes", bytes}, {"crc32c", sum}};
  }

  std::map<std::string, ordered_json> marks_;
};

std::string whole(const std::string& path) {
  std::error_code none;
  return fs::is_regular_file(path, none) ? fs::absolute(path, none).lexically_normal().string() : path;
}

ordered_json given_flags(const FlagSet& set, const Flags& line) {
  ordered_json out = ordered_json::object();
  for (const auto& name : set.names()) {
    if (set.is_toggle(name) ? !line.on(name) : !line.given(name)) continue;
    if (name == "threads" || name == "force") continue;
    if (set.is_toggle(name))
      out[name] = true;
    else if (set.is_list(name))
      out[name] = line.list(name);
    else
      out[name] = whole(line.text(name));
  }
  return out;
}

void add_files(const FlagSet& set, const Flags& line, FileMarks& marks, ordered_json& out) {
  for (const auto& [name, written] : set.file_flags()) {
    if (written || !line.given(name)) continue;
    std::error_code none;
    for (const auto& path : set.is_list(name) ? line.list(name) : std::vector{line.text(name)})
      if (fs::is_regular_file(path, none)) out[whole(path)] = marks.of(whole(path));
  }
}

Recipe recipe_of(const Trial& trial, const Flags& flags) {
  const FlagSet set = run_flags();
  return read_recipe(flags.required("recipe"), Flags(set, run_arguments(trial, flags)));
}

ordered_json settings_of(const Trial& trial, const Flags& flags, FileMarks& marks) {
  ordered_json phases = ordered_json::array(), files = ordered_json::object();
  for (const Phase& phase : recipe_of({trial.changes, kPoint}, flags).phases) {
    const FlagSet set = find_command(phase.command).flags();
    const Flags line(set, phase.arguments);
    phases.push_back({{"name", phase.name}, {"command", phase.command}, {"flags", given_flags(set, line)}});
    add_files(set, line, marks, files);
  }
  return {{"fakequant", FAKEQUANT_VERSION}, {"phases", phases}, {"files", files}};
}

/// Every setting by what it is called.
std::map<std::string, std::string> named(const ordered_json& settings) {
  const auto shown = [](const ordered_json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  std::map<std::string, std::string> out{{"fakequant", shown(settings.value("fakequant", ordered_json()))}};
  int place = 0;
  for (const auto& phase : settings.value("phases", ordered_json::array())) {
    const std::string name = phase.value("name", std::string());
    out[fmt::format("phase {}", ++place)] = name + " by " + phase.value("command", std::string());
    const auto flags = phase.value("flags", ordered_json::object());
    for (const auto& [flag, value] : flags.items()) out[fmt::format("{} --{}", name, flag)] = shown(value);
  }
  const auto files = settings.value("files", ordered_json::object());
  for (const auto& [path, mark] : files.items())
    out[path] = fmt::format("{} bytes of checksum {}", shown(mark.value("bytes", ordered_json())),
                            shown(mark.value("crc32c", ordered_json())));
  return out;
}

}  // namespace

std::vector<ordered_json> settings_of(const std::vector<Trial>& trials, const Flags& flags) {
  FileMarks marks;
  std::vector<ordered_json> out;
  for (const auto& trial : trials) out.push_back(settings_of(trial, flags, marks));
  return out;
}

std::vector<std::string> settings_that_differ(const ordered_json& there, const ordered_json& here) {
  constexpr const char* kNone = "not given";
  const auto before = named(there), now = named(here);
  std::vector<std::string> out;
  for (const auto& [name, value] : now)
    if (const auto old = before.find(name); old == before.end() || old->second != value)
      out.push_back(
          fmt::format("{} is {} there, {} here", name, old == before.end() ? kNone : old->second, value));
  for (const auto& [name, value] : before)
    if (!now.contains(name)) out.push_back(fmt::format("{} is {} there, {} here", name, value, kNone));
  return out;
}

void clear_outputs(const Trial& trial, const Flags& flags) {
  std::error_code none;
  for (const Phase& phase : recipe_of(trial, flags).phases) {
    const FlagSet set = find_command(phase.command).flags();
    const Flags line(set, phase.arguments);
    for (const auto& [name, written] : set.file_flags()) {
      if (!written || !line.has(name)) continue;
      const auto folder = name == "output" ? run_folder(line) : std::nullopt;
      if (folder) clear_run(*folder);
      for (const auto& file : written(line)) fs::remove(file.path, none);
    }
  }
  fs::remove(trial.report(), none);
}

}  // namespace fq::cli
