#pragma once

/// The grid of a recipe: flags of its phases, and the values that each is tried with.

#include <string>
#include <utility>
#include <vector>

namespace fq::cli {

struct RecipeGrid {
  /// "train.lr", and what stands behind "=" of --set for each value.
  std::vector<std::pair<std::string, std::vector<std::string>>> axes;

  /// Every combination, the last axis first, each as the texts of --set.
  [[nodiscard]] std::vector<std::vector<std::string>> points() const;
};

/// Throws FileError naming the line for a recipe without a grid, an axis that is no list and values that are
/// none, and for more than 10,000 points.
[[nodiscard]] RecipeGrid read_grid(const std::string& recipe);

}  // namespace fq::cli
