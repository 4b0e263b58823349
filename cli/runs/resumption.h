#pragma once

/// A run that is gone on with: what its checkpoint and its directory say of it.

#include <cstdint>
#include <nlohmann/json.hpp>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/training.h"

namespace fq::cli {

/// The steps that a checkpoint's run has done; 0 without one.
[[nodiscard]] std::int64_t step_of(const StateDict& saved);
/// The checkpoint at the run's output; with --allow-changes as if it had been a run of these settings.
[[nodiscard]] StateDict checkpoint_to_resume(const Run& run, const Flags& flags,
                                             const TrainerOptions& options, const nlohmann::json& settings);
/// Without --epochs and --steps a run goes on to the end that it was to have, as its directory or its
/// checkpoint tells. Throws FileError for a length that is none.
void take_length(const Run& run, const Flags& flags, const StateDict& saved, TrainerOptions& options);
/// Throws ArgumentError for fewer epochs or steps than the run has done, and, without --allow-changes, than
/// it was to have.
void check_length(const Run& run, const Flags& flags, const TrainerOptions& options, const StateDict& saved);
/// What a run that is done came to, as its directory tells it; null where that does not tell the end.
[[nodiscard]] nlohmann::ordered_json told_result(Run& run, const Flags& flags, const StateDict& saved);

}  // namespace fq::cli
