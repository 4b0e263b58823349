#pragma once

/// `run --set`: flags of phases that are otherwise than the recipe has them.

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::cli {

class RecipeChanges {
 public:
  /// Parses texts as "train.lr=0.01": a phase, by its command or its own name, a flag without dashes or a
  /// setting, and its value. Throws ArgumentError for other texts, and for one that is given twice.
  explicit RecipeChanges(const std::vector<std::string>& texts);

  /// Those of a phase by flag, each an object of that one key. Throws ArgumentError for a flag that the
  /// command does not have, naming the nearest.
  [[nodiscard]] std::map<std::string, std::shared_ptr<const fq::detail::JsonText>> of_phase(
      const std::string& name, const FlagSet& set);
  /// Throws ArgumentError for a change that was of no phase; `phases` are what they are called.
  void check_used(const std::vector<std::string>& phases) const;

 private:
  struct Change {
    std::string text;  ///< "train.lr=0.01"
    std::string name;  ///< "train.lr"
    nlohmann::ordered_json value;
    bool used = false;
  };

  /// Returns the flag or setting that a change is about in a phase; empty if it is about other phases.
  static std::string key_in(const Change& change, const std::string& phase, const FlagSet& set);

  std::vector<Change> changes_;
};

}  // namespace fq::cli
