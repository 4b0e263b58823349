#pragma once

/// Recipes: one JSON file with a model, data and phases (docs/command-line.md).

#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

/// One phase: a command and its arguments.
struct Phase {
  std::string name;  ///< "train in float"
  std::string command;
  std::vector<std::string> arguments;
  double expected_seconds = 0;  ///< on the machine of the recipe; 0: unknown
};

struct Recipe {
  std::string folder;  ///< folder of the outputs
  std::vector<Phase> phases;
};

/// Reads a recipe. Flags of `run` (data, seed, threads, output, model, set) override the values of the file.
/// Input files that do not exist are searched in the folder of the recipe and in its parent folder. Output
/// files are relative names inside of the recipe's folder. Throws FileError naming the line of a syntax
/// error, of an unknown key with the nearest one, and of a name outside of the folder.
[[nodiscard]] Recipe read_recipe(const std::string& path, const Flags& flags);

}  // namespace fq::cli
