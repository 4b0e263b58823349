#pragma once

/// An exported network in its engine: a script in a Python that has the engine.

#include <nlohmann/json_fwd.hpp>

#include "fakequant/cli/engines/engine_home.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/system/temporary_folder.h"
#include "fakequant/cli/tables/engine_report.h"
#include "fakequant/cli/tables/output.h"

namespace fq::cli {

void add_engine_flags(FlagSet& set);  ///< engines, level, session, tolerances, timeout, python
/// Throws ArgumentError for a value that no flag of these takes.
void check_engine_flags(const Flags& flags);

/// Compares --model with `expected`, prints what was found and gives the report, checked. Throws
/// ArgumentError where a Python or its packages are missing, FileError for a model that cannot be used,
/// BackendError when the Python is ended by a signal or takes longer than --timeout, or its report is not
/// whole, Interrupted after Ctrl-C.
[[nodiscard]] nlohmann::ordered_json run_engine(const Flags& flags, const VerifyEngine& engine,
                                                const EngineHome& home, const Expected& expected,
                                                const TemporaryFolder& folder, Output& output);

}  // namespace fq::cli
