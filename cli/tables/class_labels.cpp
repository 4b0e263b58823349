#include "fakequant/cli/tables/class_labels.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/text.h"

namespace fq::cli {
namespace {

constexpr std::size_t kMostShown = 12;

}  // namespace

std::string class_label(const std::vector<std::string>& names, std::int64_t index) {
  const auto at = static_cast<std::size_t>(index);
  return at < names.size() ? names[at] : std::to_string(index);
}

std::string names_text(const std::vector<std::string>& names) {
  std::vector<std::string> lines = names;
  lines.resize(std::min(names.size(), kMostShown));
  std::ranges::transform(lines, lines.begin(), fq::detail::one_line_name);
  return fmt::format("{}{}", fmt::join(lines, ", "), kMostShown < names.size() ? ", .." : "");
}

std::string classes_text(std::int64_t count, const std::vector<std::string>& names) {
  return fmt::format("{} class{}{}{}", count, count == 1 ? "" : "es", names.empty() ? "" : ": ",
                     names_text(names));
}

}  // namespace fq::cli
