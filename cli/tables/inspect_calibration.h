#pragma once

/// `inspect --calibration`: ranges, methods and histograms of a calibration.

#include <nlohmann/json_fwd.hpp>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/tables/output.h"

namespace fq::cli {

/// --calibration and what it takes.
void add_inspect_calibration_flags(FlagSet& set);
/// Throws ArgumentError naming a flag that only --calibration takes.
void check_no_calibration_flags(const Flags& flags);

/// Of a calibration state, or a checkpoint with what it holds, --state or --data: prints a table, writes
/// --html.
nlohmann::ordered_json inspect_calibration(const Flags& flags, Output& output);

}  // namespace fq::cli
