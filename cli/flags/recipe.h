#pragma once

/// Recipes: one JSON file with a model, data and phases (docs/command-line.md).

#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

/// One phase: a command and its line.
struct Phase {
  std::string name;  ///< "train in float"
  std::string command;
  std::vector<std::string> arguments;
  double expected_seconds = 0;  ///< on the machine of the recipe; 0 when it does not say
};

struct Recipe {
  std::string folder;  ///< where outputs of phases go
  std::vector<Phase> phases;
};

/// Reads a recipe; flags given to `run` (data, seed, threads, output, model, set) win over the file's own.
/// Files to read that are not there are looked up beside the recipe, and in the folder above it.
/// Files that phases write are relative names that do not leave the recipe's folder. Throws FileError naming
/// the line of a syntax error, of an unknown key with the nearest one, and of a name that leaves the folder.
[[nodiscard]] Recipe read_recipe(const std::string& path, const Flags& flags);

}  // namespace fq::cli
