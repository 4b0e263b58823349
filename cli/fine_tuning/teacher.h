#pragma once

/// Distillation as flags: whom a network learns from beside the labels.

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/flags/planned_files.h"
#include "fakequant/network/network.h"
#include "fakequant/train/distillation.h"

namespace fq::cli {

/// --teacher, --distill, --temperature and --distill-weight; `self`: whether the network may be its own.
void add_teacher_flags(FlagSet& set, bool self);
/// Throws ArgumentError for flags out of range, a --teacher that is no file, and flags without a teacher.
void check_teacher_flags(const Flags& flags, const PlannedFiles& planned);
/// Whether the network is to follow what it says in float: where --teacher says so and, without that flag,
/// where it is right for at least 99 % of its training images (`accuracy`, 0 to 1), which nothing changes,
/// and learns their classes by plain cross entropy: the labels then hold nothing new but noise. On `text` it
/// does so by QatDefaults::text_teacher_share.
[[nodiscard]] bool learns_from_itself(const Flags& flags, const Network& network, double accuracy, bool text);
/// Throws ArgumentError for a --teacher of other samples or outputs than the network's, where it is known
/// yet.
void check_teacher(const Flags& flags, const Network& network, const PlannedFiles& planned);
/// The teacher that the flags ask for, ready to run: `self` for `network` as it stands, in float, else the
/// file of --teacher, or none. Throws ArgumentError for a teacher of other samples or outputs, naming both.
[[nodiscard]] DistillationOptions read_teacher(const Flags& flags, const Network& network, bool self = false);

}  // namespace fq::cli
