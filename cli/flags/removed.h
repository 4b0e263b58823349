#pragma once

/// Flags and commands that earlier versions had.
///
/// One table serves the command line, recipes and run directories. A removed flag on a command line is an
/// error that names the replacement. Recipes and run directories of earlier versions may hold the value that
/// switched the flag off.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace fq::cli {

struct RemovedFlag {
  std::string_view name;         ///< without dashes
  std::string_view off;          ///< the value that had no effect, as text
  std::string_view replacement;  ///< a sentence: what to use instead

  /// Returns "--ewgs was removed. Use ...".
  [[nodiscard]] std::string message() const;
  /// Returns true if `value`, of a recipe or a run directory, is the value that had no effect.
  [[nodiscard]] bool is_off(const nlohmann::ordered_json& value) const;
};

/// Returns the entry of a removed flag, or null.
[[nodiscard]] const RemovedFlag* find_removed_flag(std::string_view name);

/// Returns "the command 'sweep' was removed. Use ...", or an empty text for any other name.
[[nodiscard]] std::string removed_command(std::string_view name);

}  // namespace fq::cli
