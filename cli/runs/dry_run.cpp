#include "fakequant/cli/runs/dry_run.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/flags/file_checks.h"
#include "fakequant/cli/flags/flag_groups.h"

namespace fq::cli {

nlohmann::ordered_json dry_run(const Command& command, const FlagSet& set, const Flags& flags,
                               Output& output) {
  PlannedFiles planned;
  check_general_flags(flags);
  command.check(flags, planned);
  const auto files = files_to_write(set, flags);
  for (const auto& file : files) output.line(fmt::format("would write {}", file));
  output.line(
      fmt::format("{}: flags, data, network and files fit each other; nothing was written", command.name));
  return {{"dry_run", true}, {"writes", files}};
}

}  // namespace fq::cli
