#include "fakequant/cli/recipe.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/json_text.h"
#include "fakequant/core/check.h"
#include "fakequant/core/text.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

const std::vector<std::string> kShared{"model", "model-options", "data", "seed", "threads"};

std::string argument_text(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

class Reader {
 public:
  Reader(const std::string& path, const Flags& flags)
      : file_(read_json_text(path)), flags_(flags), root_(file_.json) {}

  Recipe read() {
    check_root();
    Recipe recipe;
    folder_ = flags_.given("output") ? flags_.text("output") : root_.value("output", std::string("."));
    recipe.folder = folder_;
    for (const auto& phase : root_["phases"]) recipe.phases.push_back(read_phase(phase));
    return recipe;
  }

 private:
  void check_root() const {
    FQ_CHECK(root_.is_object(), "run", "{}: a recipe is an object with phases", file_.path);
    auto keys = kShared;
    keys.insert(keys.end(), {"output", "phases", "comment"});
    for (const auto& [key, value] : root_.items()) check_key(key, keys);
    FQ_CHECK(root_.contains("phases") && root_["phases"].is_array() && !root_["phases"].empty(), "run",
             "{}: phases is missing or empty: give a list of phases", file_.path);
    FQ_CHECK(!root_.contains("output") || root_["output"].is_string(), "run", "{}: output is not a folder",
             file_.where("output"));
  }

  void check_key(const std::string& key, const std::vector<std::string>& keys) const {
    FQ_CHECK(std::ranges::find(keys, key) != keys.end(), "run", "{}: unknown key '{}'{}", file_.where(key),
             key, detail::did_you_mean(key, keys));
  }

  Phase read_phase(const ordered_json& json) {
    FQ_CHECK(json.is_object() && json.contains("command") && json["command"].is_string(), "run",
             "{}: each phase is an object with a command", file_.where("phases"));
    Phase phase;
    phase.command = json["command"].get<std::string>();
    FQ_CHECK(phase.command != "run", "run", "{}: a recipe cannot run recipes", file_.where("command"));
    const FlagSet set = find_command(phase.command).flags();
    phase.name = json.value("phase", phase.command);
    phase.expected_seconds = json.value("seconds", 0.0);
    for (const auto& [key, value] : json.items()) add_key(phase, set, key, value);
    add_shared(phase, set, json);
    static_cast<void>(Flags(set, phase.arguments));
    return phase;
  }

  void add_key(Phase& phase, const FlagSet& set, const std::string& key, const ordered_json& value) {
    if (key == "command" || key == "phase" || key == "seconds" || key == "comment") return;
    auto keys = set.names();
    keys.insert(keys.end(), {"command", "phase", "seconds", "comment"});
    check_key(key, keys);
    if (set.is_toggle(key)) {
      FQ_CHECK(value.is_boolean(), "run", "{}: '{}' is true or false", file_.where(key), key);
      if (value.get<bool>()) phase.arguments.push_back("--" + key);
      return;
    }
    add(phase, key, is_output_path(key) ? below_folder(argument_text(value)) : argument_text(value));
  }

  void add_shared(Phase& phase, const FlagSet& set, const ordered_json& json) {
    const auto names = set.names();
    for (const auto& key : kShared) {
      if (std::ranges::find(names, key) == names.end()) continue;
      const bool override_it = flags_.given(key);
      if (json.contains(key) && !override_it) continue;
      if (json.contains(key)) remove(phase, key);
      if (override_it) add(phase, key, flags_.text(key));
      if (!override_it && root_.contains(key)) add(phase, key, argument_text(root_[key]));
    }
  }

  static bool is_output_path(const std::string& key) { return key == "output" || key == "checkpoint"; }
  std::string below_folder(const std::string& name) const {
    return (std::filesystem::path(folder_) / name).lexically_normal().string();
  }
  static void add(Phase& phase, const std::string& key, const std::string& value) {
    phase.arguments.push_back("--" + key + "=" + value);
  }
  static void remove(Phase& phase, const std::string& key) {
    std::erase_if(phase.arguments, [&](const auto& text) { return text.starts_with("--" + key + "="); });
  }

  JsonText file_;
  const Flags& flags_;
  const ordered_json& root_;
  std::string folder_;
};

}  // namespace

Recipe read_recipe(const std::string& path, const Flags& flags) { return Reader(path, flags).read(); }

}  // namespace fq::cli
