#include "fakequant/cli/runs/resumption.h"

#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/runs/run_contents.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/report/detail/runs/run_record.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/detail/run_settings.h"

namespace fq::cli {
namespace {

/// {"epochs": 40} or {"steps": 500}.
bool is_length(const nlohmann::json& value) {
  if (!value.is_object() || value.size() != 1) return false;
  const bool by_steps = value.contains("steps");
  if (!(by_steps || value.contains("epochs")) || !value.front().is_number_integer()) return false;
  return value.front() >= 1 && value.front() <= (by_steps ? kManySteps : kManyEpochs);
}

/// The end that a run was to have, by its directory, which its last start wrote, or its checkpoint. Empty
/// where neither says.
nlohmann::json length_of(const Run& run, const Flags& flags, const StateDict& saved) {
  const auto checked = [](nlohmann::json length, const std::string& path) {
    if (!is_length(length))
      throw FileError(path, "", fmt::format("[resume] the length of the run in {} is damaged", path));
    return length;
  };
  if (const auto folder = run_folder(flags); folder && holds_run(*folder)) {
    const auto config = read_run_config(*folder);
    for (const char* unit : {"steps", "epochs"})
      if (config.contains(unit)) return checked({{unit, config[unit]}}, folder->config());
  }
  if (saved.has_attribute("progress/length")) return checked(saved.attribute("progress/length"), run.out);
  return nlohmann::json::object();
}

}  // namespace

std::int64_t step_of(const StateDict& saved) {
  return saved.has_attribute("progress/step")
             ? fq::detail::whole_value<std::int64_t>(saved.attribute("progress/step"))
             : 0;
}

StateDict checkpoint_to_resume(const Run& run, const Flags& flags, const TrainerOptions& options,
                               const nlohmann::json& settings) {
  StateDict saved = load_checkpoint(run.out);
  if (!flags.on("allow-changes") || !has_training_state(saved)) return saved;
  if (saved.has_attribute("progress/settings"))
    fq::detail::check_removed_settings(saved.attribute("progress/settings"), run.out);
  saved.set_attribute("progress/settings", settings);
  for (const char* seed : {"progress/seed", "progress/loader/seed"})
    if (saved.has_attribute(seed)) saved.set_attribute(seed, options.seed);
  return saved;
}

void take_length(const Run& run, const Flags& flags, const StateDict& saved, TrainerOptions& options) {
  if (flags.given("epochs") || flags.given("steps")) return;
  const auto length = length_of(run, flags, saved);
  options.steps = fq::detail::whole_or(length, "steps", options.steps);
  options.epochs = fq::detail::whole_or(length, "epochs", options.epochs);
}

void check_length(const Run& run, const Flags& flags, const TrainerOptions& options, const StateDict& saved) {
  const bool by_steps = options.steps > 0;
  const char* unit = by_steps ? "steps" : "epochs";
  const std::int64_t wanted = by_steps ? options.steps : options.epochs;
  const char* key = by_steps ? "progress/step" : "progress/epoch";
  const std::int64_t done =
      saved.has_attribute(key) ? fq::detail::whole_value<std::int64_t>(saved.attribute(key)) : 0;
  FQ_CHECK(wanted >= done, flags.command(),
           "--{} is {}, and {} has {} of them behind it: give as many or more", unit, wanted, run.out, done);
  if (flags.on("allow-changes")) return;
  const auto there = fq::detail::whole_or<std::int64_t>(length_of(run, flags, saved), unit, 0);
  FQ_CHECK(wanted >= there, flags.command(),
           "--{} is {} there, {} here: give as many or more, or say by --allow-changes that fewer are meant",
           unit, there, wanted);
}

nlohmann::ordered_json told_result(Run& run, const Flags& flags, const StateDict& saved) {
  const auto folder = run_folder(flags);
  if (!folder)
    return {{"output", run.out}, {"steps", step_of(saved)}, {"weight_bytes", weight_bytes(run.network)}};
  if (!holds_run(*folder) || was_cut_off(*folder)) return nullptr;
  const auto record = fq::detail::RunRecord::load(folder->metrics());
  const auto* end = record.last("end");
  const bool told = end != nullptr && end == &record.lines.back() && (*end)["step"] == step_of(saved) &&
                    end->value("state", "") == "done" && end->contains("result");
  return told ? (*end)["result"] : nlohmann::ordered_json();
}

}  // namespace fq::cli
