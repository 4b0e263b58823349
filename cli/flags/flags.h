#pragma once

/// Flags of a command, and their values on the command line.

#include <boost/program_options.hpp>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fakequant/network/detail/named_values.h"

namespace fq::cli {

class Flags;

/// A file that a command is going to write.
struct WrittenFile {
  std::string path;
  std::string kind;          ///< kind (output_kind.h); an existing file of this kind is replaced
  bool make_folder = false;  ///< whether to create a missing folder
  std::string may_be = {};   ///< flag of an input file that may be the same file
};
/// Returns the output files of a flag's value.
using WrittenFiles = std::function<std::vector<WrittenFile>()>;

/// A flag that names files.
struct FileFlag {
  std::string name;
  WrittenFiles written;  ///< empty for input files
};

/// A flag that requires another flag.
struct FlagNeed {
  std::string name, other;
  std::vector<std::string> values;  ///< allowed values of `other`, up to a comma; empty: any given value
};

/// A value that `--set KEY=VALUE` and the object "training" of a `--config` file set (FlagSet::settings).
struct Setting {
  std::string key, unit, help;
  std::string standard;  ///< default as text; empty for none
};

/// Smallest and largest value of a flag, both allowed.
template <class T>
struct Range {
  T low, high;
};

/// Names of an enumeration's values, in the order of the help.
template <class E>
using NamedChoices = std::vector<std::pair<std::string, E>>;

/// The flags of a command: its help and its parsing rules.
///
///     struct EvaluateOptions {
///       std::string checkpoint;
///       std::int64_t batch = 64;
///     };
///     set.group("Data").value(options.batch, "batch,b", "SAMPLES", {1, 1 << 20}, "samples in a batch");
///
/// The first functions bind a flag to a member of the command's option struct, which must outlive the set.
/// The value of the member is the default in the help; an empty text and an empty optional mean no default.
/// `assign` writes the members. It throws ArgumentError `[command] --flag is .., use ..` for a text that
/// cannot be parsed and for a number outside of the range.
class FlagSet {
 public:
  FlagSet(std::string command, std::string summary, std::string usage);

  FlagSet& value(std::string& member, const char* names, const char* unit, const std::string& help);
  FlagSet& value(std::optional<std::string>& member, const char* names, const char* unit,
                 const std::string& help);
  FlagSet& value(std::int64_t& member, const char* names, const char* unit, Range<std::int64_t> range,
                 const std::string& help);
  FlagSet& value(std::optional<std::int64_t>& member, const char* names, const char* unit,
                 Range<std::int64_t> range, const std::string& help);
  FlagSet& value(double& member, const char* names, const char* unit, Range<double> range,
                 const std::string& help);
  FlagSet& value(std::optional<double>& member, const char* names, const char* unit, Range<double> range,
                 const std::string& help);
  /// Binds a flag that takes one of several names.
  FlagSet& choice(std::string& member, const char* names, const char* unit, std::vector<std::string> allowed,
                  const std::string& help);
  FlagSet& choice(std::optional<std::string>& member, const char* names, const char* unit,
                  std::vector<std::string> allowed, const std::string& help);
  template <class E>
  FlagSet& choice(E& member, const char* names, const char* unit,
                  NamedChoices<std::type_identity_t<E>> choices, const std::string& help);
  template <class E>
  FlagSet& choice(std::optional<E>& member, const char* names, const char* unit,
                  NamedChoices<std::type_identity_t<E>> choices, const std::string& help);
  FlagSet& toggle(bool& member, const char* names, const std::string& help);
  FlagSet& list(std::vector<std::string>& member, const char* names, const char* unit,
                const std::string& help);
  /// Binds a positional argument, in the order of the calls. A flag of the same name has the same effect.
  FlagSet& argument(std::string& member, const char* name, const char* unit, const std::string& help);
  /// Binds all remaining positional arguments, at least one.
  FlagSet& argument(std::vector<std::string>& member, const char* name, const char* unit,
                    const std::string& help);
  /// Binds a flag that names an output file of that kind (output_kind.h).
  FlagSet& output(std::string& member, const char* names, const char* unit, const std::string& help,
                  const std::string& kind);
  FlagSet& output(std::optional<std::string>& member, const char* names, const char* unit,
                  const std::string& help, const std::string& kind);
  FlagSet& output(std::string& member, const char* names, const char* unit, const std::string& help,
                  WrittenFiles files);
  /// Binds a flag with an optional value after "=". Without a value, the member is an empty text.
  FlagSet& optional_output(std::optional<std::string>& member, const char* names, const char* unit,
                           const std::string& help, WrittenFiles files);
  /// Requires a value for the flag that was added last.
  FlagSet& required();
  /// Makes all later bindings settings instead of flags, until the next `group`. The key of a setting is its
  /// name with underscores: "edge-bits" becomes `--set edge_bits=8`. A toggle takes true or false.
  FlagSet& settings();
  /// Binds --config. The member stays empty for a file of settings alone.
  FlagSet& config_file(std::optional<std::string>& member, const std::string& help);
  /// Adds --set, for a command with settings.
  FlagSet& add_set_flag();
  /// Stores all values, for run directories, which record the flags.
  FlagSet& keep_line(std::optional<Flags>& member);

  /// Starts a group of flags; `title` heads it in the help.
  FlagSet& group(std::string title);
  /// Makes `flags` require the flag `other`. Without `values`, `other` must be given. Otherwise its value,
  /// given or default, must be one of `values`; an empty entry allows a missing value. An error names both
  /// flags.
  FlagSet& need(std::initializer_list<const char*> flags, const char* other,
                const std::vector<std::string>& values = {});

  /// Writes the values to the bound members. Throws as described above, and for a required flag without a
  /// value.
  void assign(const Flags& flags) const;

  [[nodiscard]] const std::string& command() const noexcept { return command_; }
  [[nodiscard]] std::string help() const;
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool is_toggle(std::string_view name) const;
  [[nodiscard]] bool is_optional(std::string_view name) const;
  [[nodiscard]] bool is_list(std::string_view name) const;
  /// Returns the flags that name files, in their order.
  [[nodiscard]] const std::vector<FileFlag>& file_flags() const noexcept { return files_; }
  [[nodiscard]] const std::vector<FlagNeed>& needs() const noexcept { return needs_; }
  [[nodiscard]] bool writes() const;
  [[nodiscard]] const std::vector<Setting>& settings_table() const noexcept { return settings_; }
  /// Returns the setting of that key, or null.
  [[nodiscard]] const Setting* find_setting(std::string_view key) const;
  [[nodiscard]] const std::vector<boost::program_options::options_description>& groups() const noexcept {
    return groups_;
  }
  [[nodiscard]] const boost::program_options::positional_options_description& positional_arguments()
      const noexcept {
    return places_;
  }

 private:
  using Assign = std::function<void(const Flags& flags, const std::string& name)>;
  struct Binding {
    std::string name;
    bool required;
    Assign assign;
  };

  /// Adds a setting. Returns its key.
  std::string add_setting(const char* names, const char* unit, const std::string& help,
                          const std::string& standard);
  /// Add a flag without a member, with or without a default.
  FlagSet& value(const char* names, const char* unit, const char* help);
  FlagSet& value(const char* names, const char* unit, const char* help, const std::string& standard);
  FlagSet& optional_value(const char* names, const char* unit, const char* help);
  FlagSet& optional_output(const char* names, const char* unit, const char* help, WrittenFiles files);
  FlagSet& list(const char* names, const char* unit, const char* help);
  FlagSet& toggle(const char* names, const char* help);
  void note_file(const char* names, const std::string& unit, WrittenFiles files);
  /// An empty `standard` means no default.
  FlagSet& bind(const char* names, const char* unit, const std::string& help, const std::string& standard,
                Assign assign);
  template <class E>
  static std::vector<std::string> choice_names(const NamedChoices<E>& choices);

  std::string command_, summary_, usage_;
  std::vector<boost::program_options::options_description> groups_;
  boost::program_options::positional_options_description places_;
  std::vector<std::string> toggles_, optional_, lists_;
  std::vector<FileFlag> files_;
  std::vector<FlagNeed> needs_;
  std::vector<Binding> bindings_;
  std::vector<Setting> settings_;
  bool makes_settings_ = false;
};

/// Values of a command's flags, checked when they are read. All errors are ArgumentError `[command] --flag is
/// .., use ..`.
class Flags {
 public:
  /// Reads the settings of --set and of the file of --config, if it exists. Throws ArgumentError for an
  /// unknown flag or setting, naming the nearest or the commands that have it. Throws ArgumentError for an
  /// extra or missing value, and for a flag without a required other flag. Throws FileError for an unknown
  /// setting in the file.
  Flags(const FlagSet& set, const std::vector<std::string>& arguments);

  [[nodiscard]] const std::string& command() const noexcept { return command_; }
  /// Returns true if the user gave the flag. A default does not count.
  [[nodiscard]] bool given(const std::string& name) const;
  /// Returns true if the command has a flag of that name.
  [[nodiscard]] bool knows(const std::string& name) const;
  /// Returns true if a value exists, given or default.
  [[nodiscard]] bool has(const std::string& name) const;
  [[nodiscard]] bool on(const std::string& name) const;
  /// Returns an empty text without a value or default.
  [[nodiscard]] std::string text(const std::string& name) const;
  /// Returns the values of a list; empty if it is not given.
  [[nodiscard]] std::vector<std::string> list(const std::string& name) const;
  /// Throws ArgumentError if the flag is missing.
  [[nodiscard]] std::string required(const std::string& name) const;
  [[nodiscard]] std::int64_t integer(const std::string& name, std::int64_t low, std::int64_t high) const;
  [[nodiscard]] double number(const std::string& name, double low, double high) const;
  /// Returns one of `allowed`. The error names the nearest.
  [[nodiscard]] std::string choice(const std::string& name, const std::vector<std::string>& allowed) const;
  /// Returns the value of a toggle or of a boolean setting.
  [[nodiscard]] bool truth(const std::string& name) const;
  /// Returns true if the file of --config has settings and no other keys.
  [[nodiscard]] bool gives_only_settings() const noexcept { return gives_only_settings_; }
  /// Returns how a message names a value: "--epochs", "--set clip_norm", "run.json:3: clip_norm".
  [[nodiscard]] std::string shown(const std::string& name) const;

 private:
  struct Given {
    std::string text, place;  // place: file and line; empty for --set
  };

  void check(const FlagNeed& need) const;
  void read_pairs(const FlagSet& set);
  void read_file(const FlagSet& set);

  std::string command_;
  std::map<std::string, Given> settings_;
  std::map<std::string, std::string> standards_;  // defaults of all settings
  bool gives_only_settings_ = false;
  std::vector<std::string> names_;
  boost::program_options::variables_map values_;
};

/// Throws ArgumentError if `value`, of the flag `name`, is empty.
void check_given(const std::string& value, const std::string& name, const std::string& command);

using fq::detail::read_number;

template <class E>
std::vector<std::string> FlagSet::choice_names(const NamedChoices<E>& choices) {
  std::vector<std::string> names;
  for (const auto& choice : choices) names.push_back(choice.first);
  return names;
}

template <class E>
FlagSet& FlagSet::choice(E& member, const char* names, const char* unit,
                         NamedChoices<std::type_identity_t<E>> choices, const std::string& help) {
  std::string standard;
  for (const auto& [name, value] : choices)
    if (value == member) standard = name;
  return bind(names, unit, help, standard, [&member, choices](const Flags& flags, const std::string& flag) {
    const std::string text = flags.choice(flag, choice_names(choices));
    for (const auto& [name, value] : choices)
      if (name == text) member = value;
  });
}

template <class E>
FlagSet& FlagSet::choice(std::optional<E>& member, const char* names, const char* unit,
                         NamedChoices<std::type_identity_t<E>> choices, const std::string& help) {
  return bind(names, unit, help, "", [&member, choices](const Flags& flags, const std::string& flag) {
    member.reset();
    if (!flags.given(flag)) return;
    const std::string text = flags.choice(flag, choice_names(choices));
    for (const auto& [name, value] : choices)
      if (name == text) member = value;
  });
}

}  // namespace fq::cli
