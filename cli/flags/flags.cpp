#include "fakequant/cli/flags/flags.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/removed.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"

namespace po = boost::program_options;

namespace fq::cli {
namespace {

constexpr unsigned width = 110;

// Boost writes "output,o": the long name, then the letter.
std::string long_name(const char* names) {
  const std::string text = names;
  return text.substr(0, text.find(','));
}

std::string with_dashes(const std::string& name) {
  return name.empty() || name[0] == '-' ? name : "--" + name;
}

template <class T>
bool read_all(std::string_view text, T& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

po::variables_map parse(const FlagSet& set, const po::options_description& all,
                        const std::vector<std::string>& arguments) {
  // Abbreviations of flags are not accepted: a new flag would make them ambiguous and break scripts.
  const auto style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  po::variables_map values;
  po::store(po::command_line_parser(arguments)
                .options(all)
                .positional(set.positional_arguments())
                .style(style)
                .run(),
            values);
  po::notify(values);
  return values;
}

// Returns the commands that have a flag, for the message about a flag of another command.
std::vector<std::string> owning_commands(const std::string& flag) {
  std::vector<std::string> found;
  const auto add = [&](const Command& command) {
    if (!command.call || std::ranges::count(command.call()->set().names(), flag) == 0) return;
    found.emplace_back(command.name);
  };
  for (const Command& command : commands()) {
    add(command);
    if (command.parts != nullptr) std::ranges::for_each(command.parts(), add);
  }
  return found;
}

po::variables_map parse_or_explain(const FlagSet& set, const std::vector<std::string>& arguments) {
  po::options_description all;
  for (const auto& group : set.groups()) all.add(group);
  const std::string& command = set.command();
  try {
    return parse(set, all, arguments);
  } catch (const po::unknown_option& error) {
    std::string name = error.get_option_name();
    // The remedies from the most to the least specific: a setting, a removed flag, another command, a similar
    // flag.
    name.erase(0, name.find_first_not_of('-'));
    name = name.substr(0, name.find('='));
    if (const auto* moved = find_moved_flag(command, name)) FQ_CHECK(false, command, "{}", moved->message());
    if (const auto* removed = find_removed_flag(name)) FQ_CHECK(false, command, "{}", removed->message());
    auto names = set.names();
    for (auto& known : names) known = "--" + known;
    const auto others = owning_commands(name);
    FQ_CHECK(others.empty(), command, "unknown flag --{}: it is one of {}", name,
             detail::alternatives(others));
    FQ_CHECK(false, command, "unknown flag {}{}", error.get_option_name(),
             detail::did_you_mean("--" + name, names));
  } catch (const po::too_many_positional_options_error&) {
    FQ_CHECK(false, command, "too many arguments: see fakequant {} --help", command);
  } catch (const po::multiple_occurrences& error) {
    FQ_CHECK(false, command, "{} is given more than once: use it once", with_dashes(error.get_option_name()));
  } catch (const po::error& error) {
    FQ_CHECK(false, command, "{}: see fakequant {} --help", error.what(), command);
  }
  return {};
}

std::string nearest_setting(const FlagSet& set, const std::string& key) {
  std::vector<std::string> keys;
  for (const Setting& setting : set.settings_table()) keys.push_back(setting.key);
  return detail::did_you_mean(key, keys);
}

struct FileSetting {
  std::string key, text, pointer;
};

/// Returns the text of a value as --set takes it: [1, 2] becomes "1:2".
std::string setting_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string out;
  for (const auto& item : value) out += (out.empty() ? "" : ":") + setting_text(item);
  return out;
}

/// Returns the settings of an object. A member that is an object contains the settings of a group:
/// {"optimizer": {"beta1": 0.8}} is optimizer.beta1.
std::vector<FileSetting> training_settings(const nlohmann::ordered_json& object, const std::string& prefix,
                                           const std::string& pointer) {
  std::vector<FileSetting> out;
  for (const auto& [name, value] : object.items()) {
    const std::string key = prefix + name, place = pointer + "/" + detail::json_pointer_token(name);
    if (value.is_object())
      for (auto& part : training_settings(value, key + ".", place)) out.push_back(std::move(part));
    else
      out.push_back({key, setting_text(value), place});
  }
  return out;
}

}  // namespace

FlagSet::FlagSet(std::string command, std::string summary, std::string usage)
    : command_(std::move(command)), summary_(std::move(summary)), usage_(std::move(usage)) {}

FlagSet& FlagSet::group(std::string title) {
  makes_settings_ = false;
  // Line length of the help, and the smallest width of its descriptions.
  groups_.emplace_back(title, width, width / 2);
  return *this;
}

/// Records that a flag names files. The first record of a flag stays: output files are recorded before the
/// flag is added.
void FlagSet::note_file(const char* names, const std::string& unit, WrittenFiles files) {
  const std::string name = long_name(names);
  const bool known = std::ranges::find(files_, name, &FileFlag::name) != files_.end();
  if (!known && (files || unit.starts_with("FILE"))) files_.push_back({name, std::move(files)});
}

FlagSet& FlagSet::value(const char* names, const char* unit, const char* help) {
  note_file(names, unit, {});
  groups_.back().add_options()(names, po::value<std::string>()->value_name(unit), help);
  return *this;
}

FlagSet& FlagSet::value(const char* names, const char* unit, const char* help, const std::string& standard) {
  note_file(names, unit, {});
  groups_.back().add_options()(names, po::value<std::string>()->value_name(unit)->default_value(standard),
                               help);
  return *this;
}

FlagSet& FlagSet::optional_output(const char* names, const char* unit, const char* help, WrittenFiles files) {
  note_file(names, unit, std::move(files));
  return optional_value(names, unit, help);
}

FlagSet& FlagSet::optional_value(const char* names, const char* unit, const char* help) {
  note_file(names, unit, {});
  // The implicit value makes "--profile" valid. Another value needs "=": "--profile x" leaves x as an
  // argument.
  auto* value = po::value<std::string>()->value_name(unit)->implicit_value("", "");
  groups_.back().add_options()(names, value, help);
  optional_.push_back(long_name(names));
  return *this;
}

FlagSet& FlagSet::list(const char* names, const char* unit, const char* help) {
  note_file(names, unit, {});
  auto* values = po::value<std::vector<std::string>>()->value_name(unit)->multitoken();
  groups_.back().add_options()(names, values, help);
  lists_.push_back(long_name(names));
  return *this;
}

FlagSet& FlagSet::toggle(const char* names, const char* help) {
  groups_.back().add_options()(names, po::bool_switch(), help);
  toggles_.push_back(long_name(names));
  return *this;
}

FlagSet& FlagSet::settings() {
  makes_settings_ = true;
  return *this;
}

FlagSet& FlagSet::config_file(std::optional<std::string>& member, const std::string& help) {
  return bind("config", "FILE", help, "", [&member](const Flags& flags, const std::string& name) {
    // A file with "training" alone is no quantization config.
    const bool read = flags.given(name) && !flags.gives_only_settings();
    member = read ? std::optional(flags.text(name)) : std::nullopt;
  });
}

FlagSet& FlagSet::add_set_flag() {
  return list("set", "KEY=VALUE",
              "settings that have no flag, one or more: clip_norm=1 patience=5; the list is at the end");
}

FlagSet& FlagSet::keep_line(std::optional<Flags>& member) {
  // An empty name: this binding copies all flags.
  bindings_.push_back({"", false, [&member](const Flags& flags, const std::string&) { member = flags; }});
  return *this;
}

std::string FlagSet::add_setting(const char* names, const char* unit, const std::string& help,
                                 const std::string& standard) {
  std::string key = long_name(names);
  // Settings are keys of JSON objects, which have underscores.
  std::ranges::replace(key, '-', '_');
  settings_.push_back({key, unit, help, standard});
  return key;
}

const Setting* FlagSet::find_setting(std::string_view key) const {
  const auto found = std::ranges::find(settings_, key, &Setting::key);
  return found == settings_.end() ? nullptr : &*found;
}

// Binds a member to a flag, or to a setting after `settings()`. `assign` reads the value by its name.
FlagSet& FlagSet::bind(const char* names, const char* unit, const std::string& help,
                       const std::string& standard, Assign assign) {
  if (makes_settings_) {
    bindings_.push_back({add_setting(names, unit, help, standard), false, std::move(assign)});
    return *this;
  }
  bindings_.push_back({long_name(names), false, std::move(assign)});
  return standard.empty() ? value(names, unit, help.c_str()) : value(names, unit, help.c_str(), standard);
}

FlagSet& FlagSet::value(std::string& member, const char* names, const char* unit, const std::string& help) {
  return bind(names, unit, help, member,
              [&member](const Flags& flags, const std::string& name) { member = flags.text(name); });
}

FlagSet& FlagSet::value(std::optional<std::string>& member, const char* names, const char* unit,
                        const std::string& help) {
  return bind(names, unit, help, "", [&member](const Flags& flags, const std::string& name) {
    member = flags.given(name) ? std::optional(flags.text(name)) : std::nullopt;
  });
}

FlagSet& FlagSet::value(std::int64_t& member, const char* names, const char* unit, Range<std::int64_t> range,
                        const std::string& help) {
  return bind(names, unit, help, fmt::format("{}", member),
              [&member, range](const Flags& flags, const std::string& name) {
                member = flags.integer(name, range.low, range.high);
              });
}

FlagSet& FlagSet::value(std::optional<std::int64_t>& member, const char* names, const char* unit,
                        Range<std::int64_t> range, const std::string& help) {
  return bind(names, unit, help, "", [&member, range](const Flags& flags, const std::string& name) {
    member = flags.given(name) ? std::optional(flags.integer(name, range.low, range.high)) : std::nullopt;
  });
}

FlagSet& FlagSet::value(double& member, const char* names, const char* unit, Range<double> range,
                        const std::string& help) {
  return bind(names, unit, help, fmt::format("{}", member),
              [&member, range](const Flags& flags, const std::string& name) {
                member = flags.number(name, range.low, range.high);
              });
}

FlagSet& FlagSet::value(std::optional<double>& member, const char* names, const char* unit,
                        Range<double> range, const std::string& help) {
  return bind(names, unit, help, "", [&member, range](const Flags& flags, const std::string& name) {
    member = flags.given(name) ? std::optional(flags.number(name, range.low, range.high)) : std::nullopt;
  });
}

FlagSet& FlagSet::choice(std::string& member, const char* names, const char* unit,
                         std::vector<std::string> allowed, const std::string& help) {
  return bind(names, unit, help, member,
              [&member, allowed = std::move(allowed)](const Flags& flags, const std::string& name) {
                member = flags.choice(name, allowed);
              });
}

FlagSet& FlagSet::choice(std::optional<std::string>& member, const char* names, const char* unit,
                         std::vector<std::string> allowed, const std::string& help) {
  return bind(names, unit, help, "",
              [&member, allowed = std::move(allowed)](const Flags& flags, const std::string& name) {
                member = flags.given(name) ? std::optional(flags.choice(name, allowed)) : std::nullopt;
              });
}

FlagSet& FlagSet::toggle(bool& member, const char* names, const std::string& help) {
  const Assign assign = [&member](const Flags& flags, const std::string& name) {
    member = flags.truth(name);
  };
  if (makes_settings_) return bind(names, "true|false", help, member ? "true" : "false", assign);
  bindings_.push_back({long_name(names), false, assign});
  return toggle(names, help.c_str());
}

FlagSet& FlagSet::list(std::vector<std::string>& member, const char* names, const char* unit,
                       const std::string& help) {
  bindings_.push_back({long_name(names), false, [&member](const Flags& flags, const std::string& name) {
                         member = flags.list(name);
                       }});
  return list(names, unit, help.c_str());
}

FlagSet& FlagSet::argument(std::string& member, const char* name, const char* unit, const std::string& help) {
  // A positional argument is also a flag of the same name, so that recipes can set it.
  places_.add(name, 1);
  return value(member, name, unit, help);
}

FlagSet& FlagSet::argument(std::vector<std::string>& member, const char* name, const char* unit,
                           const std::string& help) {
  places_.add(name, -1);
  return list(member, name, unit, help);
}

FlagSet& FlagSet::output(std::string& member, const char* names, const char* unit, const std::string& help,
                         const std::string& kind) {
  note_file(names, unit, [&member, kind] { return std::vector<WrittenFile>{{member, kind}}; });
  return value(member, names, unit, help);
}

FlagSet& FlagSet::output(std::optional<std::string>& member, const char* names, const char* unit,
                         const std::string& help, const std::string& kind) {
  note_file(names, unit, [&member, kind] { return std::vector<WrittenFile>{{member.value_or(""), kind}}; });
  return value(member, names, unit, help);
}

FlagSet& FlagSet::output(std::string& member, const char* names, const char* unit, const std::string& help,
                         WrittenFiles files) {
  note_file(names, unit, std::move(files));
  return value(member, names, unit, help);
}

FlagSet& FlagSet::optional_output(std::optional<std::string>& member, const char* names, const char* unit,
                                  const std::string& help, WrittenFiles files) {
  bindings_.push_back({long_name(names), false, [&member](const Flags& flags, const std::string& name) {
                         member = flags.given(name) ? std::optional(flags.text(name)) : std::nullopt;
                       }});
  return optional_output(names, unit, help.c_str(), std::move(files));
}

FlagSet& FlagSet::required() {
  bindings_.back().required = true;
  return *this;
}

void FlagSet::assign(const Flags& flags) const {
  for (const Binding& binding : bindings_) {
    if (binding.required) (void)flags.required(binding.name);
    binding.assign(flags, binding.name);
  }
}

FlagSet& FlagSet::need(std::initializer_list<const char*> flags, const char* other,
                       const std::vector<std::string>& values) {
  for (const char* flag : flags) needs_.push_back({flag, other, values});
  return *this;
}

std::string FlagSet::help() const {
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // throw instead of a truncated text without memory
  out << "fakequant " << command_ << ' ' << usage_ << '\n' << summary_ << '\n';
  for (const auto& group : groups_) out << '\n' << group;
  if (settings_.empty()) return out.str();
  out << "\nSettings for --set and --config, with their defaults (fakequant help settings explains them):\n";
  std::string line = " ";
  for (const Setting& setting : settings_) {
    const std::string word =
        setting.standard.empty() ? " " + setting.key : fmt::format(" {}={}", setting.key, setting.standard);
    // A full line is written, and `line` starts again with its indent.
    if (line.size() + word.size() > width) out << std::exchange(line, " ") << '\n';
    line += word;
  }
  out << line << '\n';
  return out.str();
}

std::vector<std::string> FlagSet::names() const {
  std::vector<std::string> names;
  for (const auto& group : groups_)
    for (const auto& option : group.options()) names.push_back(option->long_name());
  return names;
}

bool FlagSet::writes() const {
  return std::ranges::any_of(files_, [](const FileFlag& flag) { return bool(flag.written); });
}

bool FlagSet::is_toggle(std::string_view name) const {
  return std::find(toggles_.begin(), toggles_.end(), name) != toggles_.end();
}

bool FlagSet::is_optional(std::string_view name) const {
  return std::find(optional_.begin(), optional_.end(), name) != optional_.end();
}

bool FlagSet::is_list(std::string_view name) const {
  return std::find(lists_.begin(), lists_.end(), name) != lists_.end();
}

// Settings are read after the flags, --set before --config. Requirements are checked last, because they
// depend on both.
Flags::Flags(const FlagSet& set, const std::vector<std::string>& arguments)
    : command_(set.command()), names_(set.names()), values_(parse_or_explain(set, arguments)) {
  for (const Setting& setting : set.settings_table()) standards_[setting.key] = setting.standard;
  if (!standards_.empty()) {
    read_pairs(set);
    read_file(set);
  }
  for (const FlagNeed& need : set.needs())
    if (given(need.name)) check(need);
}

void Flags::read_pairs(const FlagSet& set) {
  for (const std::string& pair : list("set")) {
    const std::size_t equals = pair.find('=');
    FQ_CHECK(equals != std::string::npos && equals > 0, command_,
             "--set is '{}': use KEY=VALUE, for example clip_norm=1", pair);
    const std::string key = pair.substr(0, equals);
    FQ_CHECK(set.find_setting(key) != nullptr, command_, "--set has no '{}'{}", key,
             nearest_setting(set, key));
    FQ_CHECK(settings_.emplace(key, Given{pair.substr(equals + 1), {}}).second, command_,
             "--set {} is given more than once: use it once", key);
  }
}

/// Reads the settings of --config. A file of an earlier recipe phase does not exist yet and has no settings.
void Flags::read_file(const FlagSet& set) {
  std::error_code none;
  const std::string path = text("config");
  if (path.empty() || !std::filesystem::is_regular_file(path, none)) return;
  const auto file = detail::JsonText::load(path, "quantize");
  const bool quantizes = knows("preset");
  for (const auto& [key, value] : file->value().items())
    if (!quantizes && key != "training")
      file->fail("/" + detail::json_pointer_token(key),
                 fmt::format("unknown key '{}': {} reads only \"training\"", key, command_));
  if (!file->value().is_object() || !file->value().contains("training")) return;
  gives_only_settings_ = file->value().size() == 1;
  const auto& training = file->value()["training"];
  if (!training.is_object()) file->fail("/training", "\"training\" is an object of settings");
  for (const auto& [key, value, pointer] : training_settings(training, "", "/training")) {
    if (set.find_setting(key) == nullptr)
      file->fail(pointer, fmt::format("\"training\" has no '{}'{}", key, nearest_setting(set, key)));
    // `emplace` keeps an earlier entry: --set has priority over the file.
    settings_.emplace(key, Given{value, fmt::format("{}:{}", path, file->line(pointer))});
  }
}

void Flags::check(const FlagNeed& need) const {
  if (need.values.empty())
    FQ_CHECK(given(need.other), command_, "{} is for {}: use that too, or leave it out", shown(need.name),
             shown(need.other));
  if (need.values.empty()) return;
  const std::string value = text(need.other);
  auto allowed = need.values;
  std::erase(allowed, "");
  // Values may have options: "sgd,dampening=0.1" is of the kind "sgd".
  FQ_CHECK(std::ranges::count(need.values, value.substr(0, value.find(','))) > 0, command_,
           "{} is for {} {}: use that too, or leave it out", shown(need.name), shown(need.other),
           detail::alternatives(allowed));
}

bool Flags::given(const std::string& name) const {
  return settings_.contains(name) || (values_.count(name) > 0 && !values_[name].defaulted());
}

bool Flags::knows(const std::string& name) const {
  return standards_.contains(name) || std::ranges::find(names_, name) != names_.end();
}

// Given, or with a default.
bool Flags::has(const std::string& name) const {
  const auto standard = standards_.find(name);
  return given(name) || values_.count(name) > 0 ||
         (standard != standards_.end() && !standard->second.empty());
}

std::string Flags::shown(const std::string& name) const {
  const auto setting = settings_.find(name);
  if (setting != settings_.end() && !setting->second.place.empty())
    return fmt::format("{}: {}", setting->second.place, name);
  return (standards_.contains(name) ? "--set " : "--") + name;
}

bool Flags::on(const std::string& name) const { return values_.count(name) > 0 && values_[name].as<bool>(); }

std::string Flags::text(const std::string& name) const {
  // Settings and flags have distinct names, so one function serves both.
  if (const auto setting = settings_.find(name); setting != settings_.end()) return setting->second.text;
  if (const auto standard = standards_.find(name); standard != standards_.end()) return standard->second;
  return values_.count(name) > 0 ? values_[name].as<std::string>() : std::string();
}

std::vector<std::string> Flags::list(const std::string& name) const {
  return values_.count(name) > 0 ? values_[name].as<std::vector<std::string>>() : std::vector<std::string>();
}

std::string Flags::required(const std::string& name) const {
  check_given(text(name), name, command_);
  return text(name);
}

void check_given(const std::string& value, const std::string& name, const std::string& command) {
  FQ_CHECK(!value.empty(), command, "--{} is missing: see fakequant {} --help", name, command);
}

std::int64_t Flags::integer(const std::string& name, std::int64_t low, std::int64_t high) const {
  std::int64_t value = 0;
  // A number outside of int64 fails too: from_chars reports the overflow.
  const bool whole = read_all(text(name), value);
  FQ_CHECK(whole && value >= low && value <= high, command_, "{} is '{}': use a whole number from {} to {}",
           shown(name), text(name), low, high);
  return value;
}

double Flags::number(const std::string& name, double low, double high) const {
  double value = 0;
  const bool read = read_number(text(name), value);
  FQ_CHECK(read && value >= low && value <= high, command_, "{} is '{}': use a number from {} to {}",
           shown(name), text(name), low, high);
  return value;
}

std::string Flags::choice(const std::string& name, const std::vector<std::string>& allowed) const {
  const std::string value = text(name);
  FQ_CHECK(std::find(allowed.begin(), allowed.end(), value) != allowed.end(), command_, "{} is '{}'{}",
           shown(name), value, detail::did_you_mean(value, allowed));
  return value;
}

bool Flags::truth(const std::string& name) const {
  return standards_.contains(name) ? choice(name, {"true", "false"}) == "true" : on(name);
}

}  // namespace fq::cli
