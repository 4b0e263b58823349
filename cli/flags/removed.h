#pragma once

/// Flags and commands of earlier versions.
///
/// One table serves the command line, recipes and run directories. A removed flag on a command line is an
/// error that names the replacement. Recipes and run directories of earlier versions may hold the value that
/// switched the flag off. A flag that became a setting (FlagSet::settings) is read from them as that setting.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace fq::cli {

struct RemovedFlag {
  std::string_view name;         ///< without dashes
  std::string_view off;          ///< value without an effect, as text
  std::string_view replacement;  ///< a sentence: what to use instead

  /// Returns "--ewgs was removed. Use ...".
  [[nodiscard]] std::string message() const;
  /// Returns true if `value`, of a recipe or a run directory, had no effect.
  [[nodiscard]] bool is_off(const nlohmann::ordered_json& value) const;
};

/// Returns the entry of a removed flag, or null.
[[nodiscard]] const RemovedFlag* find_removed_flag(std::string_view name);

/// A flag of `train` or `qat` that became a setting.
struct MovedFlag {
  enum class Value { same, inverted, balanced, learned };

  std::string_view name, key;
  bool of_train = true;       ///< whether `train` had this flag too
  Value value = Value::same;  ///< conversion of the flag's value to the setting's value

  /// Returns "--clip became a setting. Use --set clip_norm=VALUE.".
  [[nodiscard]] std::string message() const;
  /// Returns the setting's text for a value of a recipe or a run directory.
  [[nodiscard]] std::string setting_text(const nlohmann::ordered_json& value) const;
};

/// Returns the entry of a flag that `command` no longer has, or null.
[[nodiscard]] const MovedFlag* find_moved_flag(std::string_view command, std::string_view name);
/// Returns the name of a flag in messages of `command`: "--mask", or "--set mask" in qat.
[[nodiscard]] std::string flag_text(std::string_view command, std::string_view name);

/// Returns "the command 'sweep' was removed. Use ...", or an empty text for any other name.
[[nodiscard]] std::string removed_command(std::string_view name);

}  // namespace fq::cli
