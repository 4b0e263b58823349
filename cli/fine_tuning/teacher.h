#pragma once

/// Options of distillation.

#include <optional>
#include <string>

#include "fakequant/cli/flags/command_files.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/network/qat.h"

namespace fq::cli {

struct TeacherOptions {
  std::string command = {};                 ///< "qat" allows the network to be its own teacher
  std::optional<std::string> teacher = {};  ///< checkpoint, "self" or "none"
  std::optional<std::string> kind = {};     ///< one of distillation_kinds
  std::optional<double> temperature = {}, weight = {};

  [[nodiscard]] bool is_self() const { return teacher == "self"; }
  [[nodiscard]] bool is_file() const { return teacher && !is_self() && teacher != "none"; }
};

/// Adds --teacher.
void add_teacher_flag(FlagSet& set, TeacherOptions& options);
/// Adds --distill.
void add_distill_flag(FlagSet& set, TeacherOptions& options);
/// Adds the settings distillation.*.
void add_distillation_settings(FlagSet& set, TeacherOptions& options);
/// Throws ArgumentError for a missing teacher, and for options without a teacher.
void check_teacher_options(const TeacherOptions& options, const PlannedFiles& planned);
/// Loads the teacher's network. Returns empty options for self, none, and a checkpoint that an earlier phase
/// writes. Throws ArgumentError if samples or outputs of teacher and student differ, naming both.
[[nodiscard]] DistillationOptions load_teacher(const TeacherOptions& options, const Network& network,
                                               const PlannedFiles& planned);
/// Copies the given options.
void take_distillation(TrainingChoices& choices, const TeacherOptions& options);

}  // namespace fq::cli
