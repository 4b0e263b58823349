#include "fakequant/core/io/nearest.h"

#include <algorithm>
#include <numeric>

namespace fq::detail {
namespace {

constexpr std::size_t kCompared = 128;  // what a foreign file calls itself must not cost quadratic time

std::size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kCompared), b = b.substr(0, kCompared);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t change = diagonal + (a[i] != b[j] ? 1 : 0);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& candidates,
                                       std::size_t count) {
  std::vector<std::pair<std::size_t, std::size_t>> ranked;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    ranked.emplace_back(edit_distance(name, candidates[i]), i);
  count = std::min(count, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(count), ranked.end());
  std::vector<std::string> nearest;
  for (std::size_t i = 0; i < count; ++i) nearest.push_back(candidates[ranked[i].second]);
  return nearest;
}

std::string suggest(std::string_view name, const std::vector<std::string>& candidates) {
  const auto names = nearest_names(name, candidates);
  if (names.empty()) return "there are none";
  std::string text = "did you mean " + names[0];
  for (std::size_t i = 1; i < names.size(); ++i) text += (i + 1 == names.size() ? " or " : ", ") + names[i];
  return text + "?";
}

}  // namespace fq::detail
