#include "fakequant/cli/flags/recipe.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/flags/removed.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::cli {
namespace {

/// Changes by `run --set`: values that override values of the recipe.
class RecipeChanges {
 public:
  /// Parses texts as "train.lr=0.01": a phase (its command or its name), a flag without dashes or a setting,
  /// and a value. Throws ArgumentError for other texts, and for a key that is given twice.
  explicit RecipeChanges(const std::vector<std::string>& texts);

  /// Returns the changes of a phase by flag. Each value is an object with that one key. Throws ArgumentError
  /// for an unknown flag of the command, naming the nearest.
  [[nodiscard]] std::map<std::string, std::shared_ptr<const fq::detail::JsonText>> phase_changes(
      const std::string& name, const FlagSet& set);
  /// Throws ArgumentError for a change that matched no phase. `phases` are the names for the message.
  void check_used(const std::vector<std::string>& phases) const;

 private:
  struct Change {
    std::string text;  ///< "train.lr=0.01"
    std::string name;  ///< "train.lr"
    nlohmann::ordered_json value;
    bool used = false;
  };

  /// Returns the flag or setting that a change sets in a phase; empty if it is for other phases.
  static std::string flag_key(const Change& change, const std::string& phase, const FlagSet& set);

  std::vector<Change> changes_;
};

using nlohmann::ordered_json;

/// Parses lists, true and false as JSON. Keeps numbers and any other value as text.
ordered_json parse_value(const std::string& text) {
  auto value = ordered_json::parse(text, nullptr, false);
  // Numbers stay text, so that no digit changes.
  const bool plain = value.is_discarded() || value.is_null() || value.is_object() || value.is_number();
  return plain ? ordered_json(text) : value;
}

RecipeChanges::RecipeChanges(const std::vector<std::string>& texts) {
  for (const auto& text : texts) {
    const std::size_t equals = text.find('='), dot = text.find('.');
    // The first dot must come before "=", and the flag must have a name.
    FQ_CHECK(equals != std::string::npos && dot > 0 && dot < equals && text[equals - 1] != '.', "run",
             "--set is '{}': use PHASE.FLAG=VALUE, for example train.lr=0.01", text);
    Change change{text, text.substr(0, equals), parse_value(text.substr(equals + 1))};
    for (const auto& other : changes_)
      FQ_CHECK(other.name != change.name, "run", "--set: '{}' and '{}': use one", other.text, text);
    changes_.push_back(std::move(change));
  }
}

std::string RecipeChanges::flag_key(const Change& change, const std::string& phase, const FlagSet& set) {
  // The name of a phase has priority over its command.
  for (const auto& name : {phase, set.command()}) {
    if (!change.name.starts_with(name + ".")) continue;
    const std::string key = change.name.substr(name.size() + 1);
    // The key of a setting may hold a dot, and so may the name of another phase.
    if (key.find('.') == std::string::npos || set.find_setting(key) != nullptr) return key;
  }
  return {};
}

std::map<std::string, std::shared_ptr<const fq::detail::JsonText>> RecipeChanges::phase_changes(
    const std::string& name, const FlagSet& set) {
  std::map<std::string, std::shared_ptr<const fq::detail::JsonText>> out;
  std::map<std::string, std::string> texts;
  for (auto& change : changes_) {
    const std::string key = flag_key(change, name, set);
    if (key.empty()) continue;
    auto names = set.names();
    for (const Setting& setting : set.settings_table()) names.push_back(setting.key);
    const bool known = std::ranges::find(names, key) != names.end();
    if (const auto* moved = known ? nullptr : find_moved_flag(set.command(), key))
      FQ_CHECK(false, "run", "--set {}: {}", change.text, moved->message());
    if (const auto* removed = known ? nullptr : find_removed_flag(key))
      FQ_CHECK(false, "run", "--set {}: {}", change.text, removed->message());
    FQ_CHECK(known, "run", "--set {}: {} has no flag '{}'{}", change.text, set.command(), key,
             fq::detail::did_you_mean(key, names));
    change.used = true;
    // "train.lr" and "my phase.lr" may reach the same phase.
    const auto [same, is_first] = texts.emplace(key, change.text);
    FQ_CHECK(is_first, "run", "--set: '{}' and '{}' are of one phase, {}: use one", same->second, change.text,
             name);
    const ordered_json object{{key, change.value}};
    out[key] = std::make_shared<const fq::detail::JsonText>(
        fq::detail::JsonText::from_value(object, object.dump(), "run --set " + change.text));
  }
  return out;
}

void RecipeChanges::check_used(const std::vector<std::string>& phases) const {
  for (const auto& change : changes_)
    if (!change.used) {
      const std::string phase = change.name.substr(0, change.name.rfind('.'));
      FQ_CHECK(false, "run", "--set {}: the recipe has no phase '{}'{}", change.text, phase,
               fq::detail::did_you_mean(phase, phases));
    }
}

using fq::detail::JsonText;
using fq::detail::JsonValue;
using Names = std::vector<std::string>;

// Keys at the top of a recipe, passed on to every phase that has the flag.
const Names kShared{"model", "model-options", "data", "seed", "threads", "device"};
// Keys of a phase that are not flags of its command.
const Names kOfPhase{"command", "phase", "seconds", "comment"};

bool among(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

Names both(Names a, const Names& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Names phase_commands() {
  Names names;
  for (const Command& command : commands())
    if (command.is_phase) names.emplace_back(command.name);
  return names;
}

std::string argument_text(const JsonValue& value) {
  return value.json().is_string() ? value.string() : value.json().dump();
}

/// Returns the path of an output of a recipe. Throws ArgumentError if it lies outside of `where`: the recipe
/// may come from another person.
std::string checked_output_path(const JsonValue& value, std::string_view where) {
  std::string text = argument_text(value);
  const std::filesystem::path path = std::filesystem::path(text).lexically_normal();
  if (path.is_absolute() || (!path.empty() && *path.begin() == ".."))
    value.fail(
        fmt::format("'{}' is {}, outside of {}: a recipe writes only inside", value.key(), text, where));
  return text;
}

class Reader {
 public:
  Reader(const std::string& path, const Flags& flags)
      : text_(JsonText::load(path, "run")),
        root_(*text_),
        flags_(flags),
        changes_(flags.list("set")),
        at_(std::filesystem::path(path).parent_path()) {}

  Recipe read() {
    if (root_.has("grid"))
      root_.at("grid").fail("the grid of a recipe belongs to " + removed_command("sweep"));
    root_.expect_keys(both(kShared, {"output", "phases", "comment"}), "of a recipe");
    // The recipe's own folder must be inside of the current one. --output comes from the user and may name
    // any folder.
    if (root_.has("output"))
      folder_ = checked_output_path(root_.at("output"), "the current folder (run --output names any other)");
    if (flags_.given("output")) folder_ = flags_.text("output");
    Recipe recipe{folder_, {}};
    for (const auto& phase : root_.at("phases").elements()) recipe.phases.push_back(read_phase(phase));
    std::vector<std::string> names;
    for (const auto& phase : recipe.phases)
      for (const auto& name : {phase.command, phase.name})
        if (!among(names, name)) names.push_back(name);
    // A change that reaches no phase is probably misspelled.
    changes_.check_used(names);
    check_reached();
    if (recipe.phases.empty()) root_.at("phases").fail("there are no phases: use a list of them");
    return recipe;
  }

 private:
  Phase read_phase(const JsonValue& entry) {
    Phase phase;
    phase.command = entry.at("command").choice(phase_commands());
    phase.name = entry.has("phase") ? entry.at("phase").string() : phase.command;
    if (entry.has("seconds")) phase.expected_seconds = entry.at("seconds").number(0, 1e9);
    const auto call = find_command(phase.command).call();
    const FlagSet& set = call->set();
    // Recipes of earlier versions may hold removed flags that have no effect, and flags that are settings
    // now.
    const Names off = removed_flags(set, entry);
    std::map<std::string, std::string> settings = moved_flags(set, entry);
    Names known = both(both(kOfPhase, off), set.names());
    for (const auto& [key, value] : entry.json().items())
      if (is_moved(set, key)) known.push_back(key);
    entry.expect_keys(known, "of " + phase.command);
    const auto changes = changes_.phase_changes(phase.name, set);
    for (const auto& [key, value] : entry.json().items())
      if (!among(kOfPhase, key) && !among(off, key) && !is_moved(set, key) && !takes_settings(set, key) &&
          !(takes(set, entry, key) && flags_.given(key)) && !changes.contains(key))
        add(phase, set, key, entry.at(key));
    for (const auto& [key, text] : changes)
      if (set.find_setting(key) != nullptr)
        // A change by `run --set` replaces the recipe's value, so it is stored last.
        settings[key] = argument_text(JsonValue(*text).at(key));
      else
        add(phase, set, key, JsonValue(*text).at(key));
    for (const auto& [key, text] : settings) push(phase, "set", fmt::format("{}={}", key, text));
    add_shared(phase, set, entry, changes);
    if (flags_.on("resume") && among(set.names(), "resume") && !entry.has("resume"))
      phase.arguments.push_back("--resume");
    if (flags_.on("force") && set.writes() && !entry.has("force")) phase.arguments.push_back("--force");
    return phase;
  }

  /// Returns the removed flags of a phase. Throws if one has an effect.
  static Names removed_flags(const FlagSet& set, const JsonValue& entry) {
    Names out;
    for (const auto& [key, value] : entry.json().items()) {
      const RemovedFlag* removed = among(set.names(), key) ? nullptr : find_removed_flag(key);
      if (removed == nullptr) continue;
      if (!removed->is_off(value)) entry.at(key).fail(removed->message());
      out.push_back(key);
    }
    return out;
  }

  static bool is_moved(const FlagSet& set, const std::string& key) {
    return !among(set.names(), key) && find_moved_flag(set.command(), key) != nullptr;
  }

  static bool takes_settings(const FlagSet& set, const std::string& key) {
    return key == "set" && !set.settings_table().empty();
  }

  /// Returns the settings of a phase: the list "set" of "KEY=VALUE", and flags of earlier versions.
  static std::map<std::string, std::string> moved_flags(const FlagSet& set, const JsonValue& entry) {
    std::map<std::string, std::string> out;
    for (const auto& [key, value] : entry.json().items()) {
      if (is_moved(set, key)) {
        const MovedFlag& moved = *find_moved_flag(set.command(), key);
        out[std::string(moved.key)] = moved.setting_text(value);
      }
      if (!takes_settings(set, key)) continue;
      for (const auto& item : entry.at(key).elements()) {
        const std::string text = item.string();
        const std::size_t equals = text.find('=');
        if (equals == std::string::npos) item.fail("use KEY=VALUE, for example clip_norm=1");
        out[text.substr(0, equals)] = text.substr(equals + 1);
      }
    }
    return out;
  }

  void add(Phase& phase, const FlagSet& set, const std::string& key, const JsonValue& value) {
    if (set.is_toggle(key) || (set.is_optional(key) && value.json().is_boolean())) {
      // false leaves out the flag: toggles have no negative form.
      if (value.boolean()) phase.arguments.push_back("--" + key);
      return;
    }
    if (set.is_list(key) && value.json().is_array()) {
      phase.arguments.push_back("--" + key);
      for (const auto& item : value.json())
        phase.arguments.push_back(item.is_string() ? item.get<std::string>() : item.dump());
      return;
    }
    // Outputs are confined to the folder. Inputs may come from anywhere.
    const std::string text = is_written(set, key)
                                 ? checked_output_path(value, "the folder that run --output names")
                                 : find_input(set, key, argument_text(value));
    // Also inputs that an earlier phase writes, so that phases find each other's files in any output folder.
    const bool below_folder =
        key == "output" || key == "checkpoint" || key == "profile" || written_.contains(below(text));
    if (key == "output") written_.insert(below(text));
    push(phase, key, below_folder ? below(text) : text);
  }

  /// Returns true if a phase takes the shared value of `key`. Only commands that build a model take `model`,
  /// not those whose `model` is an exported file. `inspect` takes `data` only for a calibration.
  static bool takes(const FlagSet& set, const JsonValue& entry, const std::string& key) {
    const Names names = set.names();
    if (!among(kShared, key) || !among(names, key)) return false;
    if (key.starts_with("model")) return among(names, "model-options") && !entry.has("checkpoint");
    return key != "data" || !among(names, "calibration") || entry.has("calibration");
  }

  template <class Changes>
  void add_shared(Phase& phase, const FlagSet& set, const JsonValue& entry, const Changes& changes) {
    for (const auto& key : kShared) {
      if (!takes(set, entry, key) || changes.contains(key)) continue;
      if (flags_.given(key)) {
        reached_.insert(key);
        push(phase, key, flags_.text(key));
      } else if (!entry.has(key) && root_.has(key)) {
        push(phase, key, find_input(set, key, argument_text(root_.at(key))));
      }
    }
  }

  void check_reached() const {
    for (const auto& key : kShared)
      FQ_CHECK(!flags_.given(key) || reached_.contains(key), "run",
               "--{} reaches no phase of {}: leave it out", key, flags_.text("recipe"));
  }

  static bool is_written(const FlagSet& set, const std::string& key) {
    const auto flag = std::ranges::find(set.file_flags(), key, &FileFlag::name);
    return flag != set.file_flags().end() && flag->written;
  }

  /// Returns the path of an input file. A missing file may be in the folder of the recipe or, for an
  /// installed recipe, in its parent folder.
  [[nodiscard]] std::string find_input(const FlagSet& set, const std::string& key,
                                       const std::string& text) const {
    namespace fs = std::filesystem;
    const auto flag = std::ranges::find(set.file_flags(), key, &FileFlag::name);
    std::error_code none;
    if (flag == set.file_flags().end() || flag->written || text.empty() || fs::exists(text, none) ||
        fs::path(text).is_absolute() || written_.contains(below(text)))
      return text;
    // Recipes of the repository and of an installation name files relative to the folder above.
    for (const fs::path& folder : {at_, at_ / ".."})
      if (fs::is_regular_file(folder / text, none)) return (folder / text).lexically_normal().string();
    return text;
  }

  std::string below(const std::string& name) const {
    return (std::filesystem::path(folder_) / name).lexically_normal().string();
  }
  static void push(Phase& phase, const std::string& key, const std::string& value) {
    phase.arguments.push_back("--" + key + "=" + value);
  }

  std::shared_ptr<const JsonText> text_;
  JsonValue root_;
  const Flags& flags_;
  RecipeChanges changes_;
  std::filesystem::path at_;  // folder of the recipe file
  std::string folder_ = ".";
  std::set<std::string> written_;  // outputs of the phases so far
  std::set<std::string> reached_;  // given flags that a phase takes
};

}  // namespace

Recipe read_recipe(const std::string& path, const Flags& flags) { return Reader(path, flags).read(); }

}  // namespace fq::cli
