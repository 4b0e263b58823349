#include "fakequant/cli/fine_tuning/teacher.h"

#include <fmt/format.h>

#include "fakequant/cli/flags/file_checks.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/network/qat.h"

namespace fq::cli {
namespace {

constexpr double kMostTemperature = 1000;

bool wanted(const Flags& flags) { return flags.given("teacher") && flags.text("teacher") != "none"; }
bool may_be_wanted(const Flags& flags) {
  return wanted(flags) || (!flags.given("teacher") && flags.command() == "qat");
}
bool is_self(const Flags& flags) { return flags.text("teacher") == "self"; }

DistillationOptions read_numbers(const Flags& flags) {
  DistillationOptions out;
  if (flags.given("distill")) out.kind = flags.choice("distill", distillation_kinds());
  out.temperature = flags.number("temperature", 1e-3, kMostTemperature);
  out.weight = flags.number("distill-weight", 0, 1);
  return out;
}

/// Nothing where it is not known yet.
std::optional<Network> file_network(const Flags& flags, const PlannedFiles& planned) {
  const std::string path = flags.text("teacher");
  auto out = planned.network(path);
  if (!out) return out;
  check_not_compressed(*out, flags.command(), path);
  if (out->quantized() && !planned.holds(path)) check_calibrated(*out, flags.command());
  return out;
}

void check_alike(const Network& teacher, const Network& network, const Flags& flags,
                 const std::string& name) {
  FQ_CHECK(teacher.input_shape() == network.input_shape(), flags.command(),
           "--teacher {} takes samples of {}, the network of {}: give a teacher of the same data", name,
           to_string(teacher.input_shape()), to_string(network.input_shape()));
  const Shape theirs = teacher.output_shape(), own = network.output_shape();
  FQ_CHECK(theirs == own, flags.command(),
           "--teacher {} gives {} for a sample, the network {}: give a teacher of the same classes", name,
           to_string(Shape(theirs.begin() + 1, theirs.end())), to_string(Shape(own.begin() + 1, own.end())));
}

}  // namespace

void add_teacher_flags(FlagSet& set, bool self) {
  set.group("Distillation")
      .value("teacher", self ? "FILE|self|none" : "FILE|none",
             self
                 ? "a network whose outputs are followed: a checkpoint, or self, the float network that this "
                   "one is made of (default: self where that has learnt the training data, 99 % of them, "
                   "and on text with anything but integers of 8 bits, without --augment, "
                   "--label-smoothing, --init and --loss; else none)"
                 : "a network whose outputs are followed: a checkpoint (default: none)")
      .value("distill", "NAME",
             "kl (of classes) or mse (of outputs) from the teacher (default: kl where outputs are classes)")
      .need({"temperature"}, "distill", {"kl", ""})
      .value("temperature", "NUMBER",
             "that both outputs are divided by, for kl; of self on text 1 by default", "2")
      .value("distill-weight", "SHARE",
             "of the teacher in the loss; the labels have the rest; of self on text 0.5 by default", "1");
}

void check_teacher_flags(const Flags& flags, const PlannedFiles& planned) {
  (void)read_numbers(flags);
  if (wanted(flags) && !is_self(flags)) planned.check_there(flags, "teacher");
  for (const char* flag : {"distill", "temperature", "distill-weight"})
    FQ_CHECK(may_be_wanted(flags) || !flags.given(flag), flags.command(),
             "--{} is for a --teacher: give a checkpoint{}", flag,
             flags.command() == "qat" ? ", or self" : "");
}

std::optional<bool> self_distillation(const Flags& flags) {
  if (flags.given("teacher")) return is_self(flags);
  for (const char* flag : {"augment", "label-smoothing", "init", "loss"})
    if (flags.given(flag)) return false;
  return std::nullopt;
}

void check_teacher(const Flags& flags, const Network& network, const PlannedFiles& planned) {
  if (!wanted(flags) || is_self(flags)) return;
  if (const auto teacher = file_network(flags, planned))
    check_alike(*teacher, network, flags, flags.text("teacher"));
}

DistillationOptions read_teacher(const Flags& flags, const Network& network) {
  if (!wanted(flags) || is_self(flags)) return {};
  DistillationOptions out = read_numbers(flags);
  const Network teacher = file_network(flags, {}).value();
  check_alike(teacher, network, flags, flags.text("teacher"));
  if (!flags.given("distill")) out.kind = distillation_kind(network);
  out.teacher = teacher.shared_module();
  return out;
}

void read_distillation(const Flags& flags, TrainingChoices& choices) {
  const DistillationOptions given = read_numbers(flags);
  if (flags.given("distill")) choices.distillation_kind = given.kind;
  if (flags.given("temperature")) choices.temperature = given.temperature;
  if (flags.given("distill-weight")) choices.teacher_share = given.weight;
}

}  // namespace fq::cli
