#pragma once

/// Flags: what a command takes on its line, and what it was given.

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
  std::string kind;          ///< what it will be, and may replace without --force (file_reader.h)
  bool make_folder = false;  ///< whether its folder is made where it is not there
  std::string may_be = {};   ///< a flag of a file that is read, and may be this one
};
/// The files that the value of a flag stands for.
using WrittenFiles = std::function<std::vector<WrittenFile>(const Flags&)>;

/// A flag that names files.
struct FileFlag {
  std::string name;
  WrittenFiles written;  ///< empty: they are read
};

/// A flag that says nothing by itself.
struct FlagNeed {
  std::string name, other;
  std::vector<std::string> values;  ///< of `other`, up to a comma; none: it has to be given
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

/// The flags that a command takes: its help, and the rules by which its line is read.
///
///     struct EvaluateOptions {
///       std::string checkpoint;
///       std::int64_t batch = 64;
///     };
///     set.group("Data").value(options.batch, "batch,b", "SAMPLES", {1, 1 << 20}, "samples in a batch");
///
/// The first functions bind a flag to a member of the command's option struct, which has to outlive the set.
/// The member's value is the default in the help; an empty text and an empty optional are none. `assign`
/// writes the members. It throws ArgumentError `[command] --flag is .., give ..` for text that is no such
/// value and for numbers outside of the range.
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
  /// Binds an argument without dashes, by its place; it is also a flag of that name.
  FlagSet& argument(std::string& member, const char* name, const char* unit, const std::string& help);
  /// Binds all arguments without dashes that follow; one or more.
  FlagSet& argument(std::vector<std::string>& member, const char* name, const char* unit,
                    const std::string& help);
  /// Binds a flag that names a file to write, of that kind (output_kind.h).
  FlagSet& output(std::string& member, const char* names, const char* unit, const std::string& help,
                  const std::string& kind);
  FlagSet& output(std::optional<std::string>& member, const char* names, const char* unit,
                  const std::string& help, const std::string& kind);
  FlagSet& output(std::string& member, const char* names, const char* unit, const std::string& help,
                  WrittenFiles files);
  /// Binds a flag whose value, after "=", may be left out; the member is then an empty text.
  FlagSet& optional_output(std::optional<std::string>& member, const char* names, const char* unit,
                           const std::string& help, WrittenFiles files);
  /// Requires a value for the flag that was added last.
  FlagSet& required();
  /// Makes what is bound after this call a setting, not a flag, until the next `group`. Its key is the name
  /// with underscores: "edge-bits" becomes `--set edge_bits=8`. A toggle takes true or false.
  FlagSet& settings();
  /// Binds --config. The member stays empty for a file of settings alone.
  FlagSet& config_file(std::optional<std::string>& member, const std::string& help);
  /// Adds --set, for a command with settings.
  FlagSet& add_set_flag();
  /// Stores all values, for run directories, which record the flags.
  FlagSet& keep_line(std::optional<Flags>& member);

  /// Starts a group of flags; `title` heads it in the help.
  FlagSet& group(std::string title);
  /// `flags` are for another one of this command: without `values` that has to be given, else have one of
  /// them, which a default may be; an empty one allows to leave it out. Whoever gives one of `flags`
  /// otherwise is told both.
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
  /// Those that name files, in their order.
  [[nodiscard]] const std::vector<FileFlag>& file_flags() const noexcept { return files_; }
  [[nodiscard]] const std::vector<FlagNeed>& needs() const noexcept { return needs_; }
  [[nodiscard]] bool writes() const;
  [[nodiscard]] const std::vector<Setting>& settings_table() const noexcept { return settings_; }
  /// Returns the setting of that key, or null.
  [[nodiscard]] const Setting* find_setting(std::string_view key) const;
  [[nodiscard]] const std::vector<boost::program_options::options_description>& groups() const noexcept {
    return groups_;
  }
  [[nodiscard]] const boost::program_options::positional_options_description& places() const noexcept {
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
  /// An empty `standard` is no default.
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

/// The values of a command's flags, checked when they are read.
/// Every error is an ArgumentError `[command] --flag is .., give ..`.
class Flags {
 public:
  /// Reads the settings of --set and of the file of --config, if it is there. Throws ArgumentError for an
  /// unknown flag or setting, naming the nearest or the commands that have it, for a value too many or
  /// missing, and for a flag without the one that it needs. Throws FileError for an unknown setting of the
  /// file.
  Flags(const FlagSet& set, const std::vector<std::string>& arguments);

  [[nodiscard]] const std::string& command() const noexcept { return command_; }
  /// Whether the user gave it; a default does not count.
  [[nodiscard]] bool given(const std::string& name) const;
  /// Whether the command takes a flag of that name.
  [[nodiscard]] bool knows(const std::string& name) const;
  /// Whether there is a value: one that was given, or a default.
  [[nodiscard]] bool has(const std::string& name) const;
  [[nodiscard]] bool on(const std::string& name) const;
  /// Empty when not given and without a default.
  [[nodiscard]] std::string text(const std::string& name) const;
  /// The values of a list, none when not given.
  [[nodiscard]] std::vector<std::string> list(const std::string& name) const;
  /// Throws ArgumentError when it is missing.
  [[nodiscard]] std::string required(const std::string& name) const;
  [[nodiscard]] std::int64_t integer(const std::string& name, std::int64_t low, std::int64_t high) const;
  [[nodiscard]] double number(const std::string& name, double low, double high) const;
  /// One of `allowed`; the error names the nearest.
  [[nodiscard]] std::string choice(const std::string& name, const std::vector<std::string>& allowed) const;
  /// True or false, of a toggle or a setting.
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
