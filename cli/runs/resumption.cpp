#include "fakequant/cli/runs/resumption.h"

#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/runs/run_contents.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/report/detail/runs/run_record.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq::cli {

std::int64_t step_of(const StateDict& saved) {
  return saved.has_attribute("progress/step")
             ? fq::detail::whole_value<std::int64_t>(saved.attribute("progress/step"))
             : 0;
}

StateDict checkpoint_to_resume(const Run& run, const Flags& flags, const TrainerOptions& options,
                               const nlohmann::json& settings) {
  StateDict saved = load_checkpoint(run.out);
  if (!flags.on("allow-changes") || !has_training_state(saved)) return saved;
  saved.set_attribute("progress/settings", settings);
  for (const char* seed : {"progress/seed", "progress/loader/seed"})
    if (saved.has_attribute(seed)) saved.set_attribute(seed, options.seed);
  return saved;
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
  const auto folder = run_folder(flags);
  if (!folder || !holds_run(*folder) || flags.on("allow-changes")) return;
  const auto config = read_run_config(*folder);
  FQ_CHECK(!config.contains(unit) || !config[unit].is_number_integer() || wanted >= config[unit],
           flags.command(),
           "--{} is {} there, {} here: give as many or more, or say by --allow-changes that fewer are meant",
           unit, config[unit].get<std::int64_t>(), wanted);
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
