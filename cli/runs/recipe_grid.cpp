#include "fakequant/cli/runs/recipe_grid.h"

#include "fakequant/core/io/detail/json_text.h"

namespace fq::cli {
namespace {

constexpr std::size_t kMostPoints = 10'000;

std::string value_text(const fq::detail::JsonValue& value) {
  if (value.json().is_object() || value.json().is_null())
    value.fail("a value of the grid is a number, a text, true, false or a list of these");
  return value.json().is_string() ? value.string() : value.json().dump();
}

}  // namespace

std::vector<std::vector<std::string>> RecipeGrid::points() const {
  std::vector<std::vector<std::string>> out{{}};
  for (const auto& [key, values] : axes) {
    std::vector<std::vector<std::string>> longer;
    for (const auto& point : out)
      for (const auto& value : values) {
        longer.push_back(point);
        longer.back().push_back(key + "=" + value);
      }
    out = std::move(longer);
  }
  return out;
}

RecipeGrid read_grid(const std::string& recipe) {
  const auto text = fq::detail::JsonText::load(recipe, "sweep");
  const fq::detail::JsonValue root(*text);
  if (!root.is_object() || !root.has("grid"))
    root.fail(
        "the recipe has no grid: give one, as \"grid\": {\"train.lr\": [0.001, 0.004]}, or use fakequant "
        "run");
  const auto grid = root.at("grid");
  if (!grid.is_object() || grid.size() == 0) grid.fail("the grid has to be an object of lists");
  RecipeGrid out;
  std::size_t points = 1;
  for (const auto& [key, list] : grid.json().items()) {
    auto& values = out.axes.emplace_back(key, std::vector<std::string>()).second;
    for (const auto& value : grid.at(key).elements()) values.push_back(value_text(value));
    if (values.empty()) grid.at(key).fail("there are no values: give one or more");
    points *= values.size();
    if (points > kMostPoints) grid.fail("the grid has more than 10,000 points: give fewer values");
  }
  return out;
}

}  // namespace fq::cli
