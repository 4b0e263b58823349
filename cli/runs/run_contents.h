#pragma once

/// What lies in the folder that a run is to be written to.

#include "fakequant/cli/runs/run_folder.h"

namespace fq::cli {

/// A run that began: config.json and metrics.jsonl are there.
[[nodiscard]] bool holds_run(const RunFolder& folder);
/// Whether there is nothing but what a run leaves that ended before it began, whenever that was.
[[nodiscard]] bool is_empty_folder(const RunFolder& folder);
/// Removes what a run wrote there, and nothing else.
void clear_run(const RunFolder& folder);

/// Whether who wrote its page or table last was killed over it.
[[nodiscard]] bool was_cut_off(const RunFolder& folder);

}  // namespace fq::cli
