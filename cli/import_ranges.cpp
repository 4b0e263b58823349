#include "fakequant/cli/import_ranges.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/safetensors/modelopt.h"
#include "fakequant/layers/quantizer/detail/dead_channels.h"

namespace fq::cli {
namespace {

/// The first of many.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  const auto shown = std::min(names.size(), most);
  auto text = fmt::format("{}", fmt::join(names.begin(), names.begin() + std::ptrdiff_t(shown), ", "));
  return names.size() > shown ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}

}  // namespace

void import_ranges(Network& network, const std::string& path, bool data_follows, const std::string& command,
                   Output& output) {
  const ImportedRanges found = fq::import_ranges(network.module(), path);
  FQ_CHECK(found.missing.empty() || data_follows, command,
           "{} has no ranges of {}: give --data to calibrate them, or other rules", path,
           listed(found.missing));
  std::string text = fmt::format("{} ranges from {}", found.set.size(), path);
  if (!found.missing.empty()) text += fmt::format(", none of {}", listed(found.missing));
  if (!found.unused.empty()) text += fmt::format("; not used: {}", listed(found.unused));
  output.record(
      text, {{"event", "import"}, {"set", found.set}, {"missing", found.missing}, {"unused", found.unused}});
  if (found.missing.empty()) floor_dead_channels(network.module());
}

}  // namespace fq::cli
