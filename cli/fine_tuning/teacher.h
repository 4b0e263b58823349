#pragma once

/// Flags of distillation.

#include <optional>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/flags/planned_files.h"
#include "fakequant/network/qat.h"

namespace fq::cli {

/// --teacher, --distill, --temperature and --distill-weight; `self`: whether the network may be its own.
void add_teacher_flags(FlagSet& set, bool self);
/// Throws ArgumentError for flags out of range, a --teacher that is no file, and flags without a teacher.
void check_teacher_flags(const Flags& flags, const PlannedFiles& planned);
/// Whether the float network is its own teacher (QatOptions::self_distillation); empty if no flag decides.
[[nodiscard]] std::optional<bool> self_distillation(const Flags& flags);
/// Throws ArgumentError for a --teacher of other samples or outputs than the network's, where it is known
/// yet.
void check_teacher(const Flags& flags, const Network& network, const PlannedFiles& planned);
/// Loads the network of --teacher; empty options for self and none. Throws ArgumentError for a teacher of
/// other samples or outputs, naming both.
[[nodiscard]] DistillationOptions read_teacher(const Flags& flags, const Network& network);
/// Copies --distill, --temperature and --distill-weight that are given.
void read_distillation(const Flags& flags, TrainingChoices& choices);

}  // namespace fq::cli
