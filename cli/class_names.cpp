#include "fakequant/cli/class_names.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/log.h"

namespace fq::cli {
namespace {

constexpr const char* kNames = "class_names";
constexpr std::size_t kMostShown = 12;

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::ranges::sort(names);
  return names;
}

void compare_names(const std::vector<std::string>& own, const std::vector<std::string>& given,
                   const std::string& function) {
  const auto [here, there] = std::ranges::mismatch(own, given);
  if (here == own.end()) return;
  FQ_CHECK(
      sorted(own) != sorted(given), function,
      "the data calls class {} '{}', the network '{}', and both have the same classes: number the labels of "
      "the data as the network does",
      here - own.begin(), *there, *here);
  log(LogLevel::warning, fmt::format("[{}] the data calls class {} '{}', the network '{}': is it data of the "
                                     "same classes? The network's names are shown",
                                     function, here - own.begin(), *there, *here));
}

}  // namespace

std::vector<std::string> class_names(const Network& network) {
  return network.identity.value(kNames, std::vector<std::string>{});
}

std::int64_t named_outputs(const Network& network) {
  return fq::detail::whole_value<std::int64_t>(network.identity.at("classes"));
}

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

void take_class_names(Network& network, const Dataset& data, const std::string& function) {
  const auto& given = data.class_names();
  const std::int64_t outputs = named_outputs(network);
  if (given.empty() || (outputs == 0 && data.labels().rank() > 1)) return;
  if (std::int64_t(given.size()) != outputs)
    return log(
        LogLevel::warning,
        fmt::format("[{}] the data names {} classes, the network has {} outputs: its names are not used",
                    function, given.size(), outputs));
  const auto own = class_names(network);
  if (own.empty())
    network.identity[kNames] = given;
  else
    compare_names(own, given, function);
}

}  // namespace fq::cli
