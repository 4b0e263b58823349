#pragma once

/// An exported network in its engine: scripts/verify_onnx.py in a Python that has ONNX Runtime.

#include <nlohmann/json_fwd.hpp>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/system/temporary_folder.h"
#include "fakequant/cli/tables/engine_report.h"
#include "fakequant/cli/tables/output.h"

namespace fq::cli {

void add_engine_flags(FlagSet& set);  ///< level, session, tolerance, code-tolerance, timeout, python
/// Throws ArgumentError for a value that no flag of these takes.
void check_engine_flags(const Flags& flags);

/// Compares --model with `expected`, prints what was found and gives the report, checked. Throws
/// ArgumentError where a Python or its packages are missing, FileError for a model that cannot be used,
/// BackendError when the Python is ended by a signal or takes longer than --timeout, or its report is not
/// whole, Interrupted after Ctrl-C.
[[nodiscard]] nlohmann::ordered_json run_engine(const Flags& flags, const Expected& expected,
                                                const TemporaryFolder& folder, Output& output);

}  // namespace fq::cli
