#include "fakequant/cli/fine_tuning/teacher.h"

#include "fakequant/cli/flags/command_files.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/network/qat.h"

namespace fq::cli {
namespace {

constexpr double kMostTemperature = 1000;

/// Returns true if the run may have a teacher.
bool may_have_teacher(const TeacherOptions& options) {
  // Without --teacher, qat may choose the float network. train has no teacher then.
  return options.teacher ? options.is_self() || options.is_file() : options.command == "qat";
}

/// Returns the teacher's network; empty if it depends on an earlier phase.
std::optional<Network> teacher_network(const TeacherOptions& options, const PlannedFiles& planned) {
  const std::string& path = *options.teacher;
  auto out = planned.network(path);
  if (!out) return out;
  check_not_compressed(*out, options.command, path);
  // A quantized teacher must have ranges. The ranges of an earlier phase are not known yet.
  if (out->quantized() && !planned.holds(path)) check_calibrated(*out, options.command);
  return out;
}

// Distillation compares outputs element by element, on the same batches.
void check_alike(const Network& teacher, const Network& network, const TeacherOptions& options) {
  const std::string& name = *options.teacher;
  FQ_CHECK(teacher.input_shape() == network.input_shape(), options.command,
           "--teacher {} takes samples of {}, the network of {}: use a teacher of the same data", name,
           to_string(teacher.input_shape()), to_string(network.input_shape()));
  const Shape theirs = teacher.output_shape(), own = network.output_shape();
  FQ_CHECK(theirs == own, options.command,
           "--teacher {} gives {} for a sample, the network {}: use a teacher of the same classes", name,
           to_string(Shape(theirs.begin() + 1, theirs.end())), to_string(Shape(own.begin() + 1, own.end())));
}

}  // namespace

void add_teacher_flag(FlagSet& set, TeacherOptions& options) {
  const bool self = options.command == "qat";
  set.value(options.teacher, "teacher", self ? "FILE|self|none" : "FILE|none",
            self ? "teacher of distillation: a checkpoint, or self (the float network) (default: self for "
                   "memorized training data, and for text without 8-bit integers; none with --augment, "
                   "--label-smoothing, --init or --loss)"
                 : "teacher of distillation: a checkpoint (default: none)");
}

void add_distill_flag(FlagSet& set, TeacherOptions& options) {
  set.choice(options.kind, "distill", "NAME", distillation_kinds(),
             "distillation loss: kl (of classes) or mse (of outputs) (default: kl if outputs are classes)");
}

void add_distillation_settings(FlagSet& set, TeacherOptions& options) {
  set.need({"distillation.temperature"}, "distill", {"kl", ""});
  set.value(options.temperature, "distillation.temperature", "NUMBER", {1e-3, kMostTemperature},
            "divides both outputs, for kl (default: 2; with teacher self on text 1)")
      .value(options.weight, "distillation.weight", "SHARE", {0, 1},
             "share of the teacher in the loss (default: 1; with teacher self on text 0.5)");
}

void check_teacher_options(const TeacherOptions& options, const PlannedFiles& planned) {
  if (options.is_file()) planned.check_there(options.command, "teacher", *options.teacher);
  const auto check = [&](bool given, const char* name) {
    FQ_CHECK(may_have_teacher(options) || !given, options.command,
             "{} is for a --teacher: use a checkpoint{}", name, options.command == "qat" ? ", or self" : "");
  };
  check(options.kind.has_value(), "--distill");
  check(options.temperature.has_value(), "--set distillation.temperature");
  check(options.weight.has_value(), "--set distillation.weight");
}

DistillationOptions load_teacher(const TeacherOptions& options, const Network& network,
                                 const PlannedFiles& planned) {
  // The teacher "self" is a copy with its quantizers off, which `prepare_qat` makes.
  if (!options.is_file()) return {};
  const auto teacher = teacher_network(options, planned);
  if (!teacher) return {};
  check_alike(*teacher, network, options);
  DistillationOptions out;
  out.kind = options.kind.value_or(distillation_kind(network));
  out.temperature = options.temperature.value_or(out.temperature);
  out.weight = options.weight.value_or(out.weight);
  out.teacher = teacher->shared_module();
  return out;
}

void take_distillation(TrainingChoices& choices, const TeacherOptions& options) {
  choices.distillation_kind = options.kind;
  choices.temperature = options.temperature;
  choices.teacher_share = options.weight;
}

}  // namespace fq::cli
