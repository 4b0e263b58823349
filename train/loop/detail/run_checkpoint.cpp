#include "fakequant/train/loop/detail/run_checkpoint.h"

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/loop/detail/run_inputs.h"
#include "fakequant/train/loop/detail/saved_values.h"
#include "fakequant/train/ranks/detail/collectives.h"

namespace fq::detail {
namespace {

nlohmann::json parsed(const std::string& text) {
  if (text.empty()) return nullptr;
  return JsonText(text, "train: the model's description").value();
}

/// Returns null without the attribute, which older files do not have.
nlohmann::json read_object(const StateDict& run, const char* name, const std::string& path) {
  if (!run.has_attribute(name)) return nullptr;
  const auto& value = run.attribute(name);
  if (!value.is_object())
    throw FileError(
        path, "progress",
        fmt::format("[resume] the progress in {} is damaged: {} is {}", path, name, value.dump()));
  return value;
}

// State dictionaries share tensors with the run, which the next step overwrites.
StateDict copied(const StateDict& state) {
  StateDict out;
  for (const auto& [name, value] : state.attributes().items()) out.set_attribute(name, value);
  for (const auto& [name, tensor] : state.tensors()) out.set(name, tensor.clone());
  return out;
}

}  // namespace

RunCheckpoint::RunCheckpoint(const RunInputs& inputs, RunProgress& progress, ParameterUpdate& update,
                             Validation& validation, Communicator* ranks)
    : inputs_(inputs),
      progress_(progress),
      update_(update),
      validation_(validation),
      ranks_(ranks),
      description_(parsed(inputs.options.checkpoint.model)) {}

nlohmann::json RunCheckpoint::settings() const {
  return run_settings(inputs_.options, *inputs_.training, inputs_.validation.get());
}

const nlohmann::json& RunCheckpoint::fingerprints() const {
  if (!fingerprints_) {
    auto& marks = fingerprints_.emplace(nlohmann::json::object());
    marks["training"] = inputs_.training->data().fingerprint();
    if (inputs_.validation) marks["validation"] = inputs_.validation->data().fingerprint();
    if (const auto& teacher = inputs_.options.objective.distillation.teacher)
      marks["teacher"] = model_fingerprint(*teacher);
  }
  return *fingerprints_;
}

void RunCheckpoint::begin_run() const {
  const TrainerOptions& options = inputs_.options;
  // The first checkpoint then needs no pass over the data.
  if (!options.checkpoint.out.empty()) (void)fingerprints();
  if (ranks_ == nullptr) return;
  nlohmann::json own{{"settings", settings()},
                     {"epochs", options.epochs},
                     {"steps", options.steps},
                     {"step", progress_.position().step},
                     {"model", model_fingerprint(*inputs_.model)},
                     // The bits are the same only for ranks with equal numbers of threads (docs/ranks.md).
                     {"threads", threads()}};
  if (!options.checkpoint.out.empty()) own["data"] = fingerprints();
  check_same_everywhere(*ranks_, own);
}

StateDict RunCheckpoint::state() const {
  // Order: put_average exchanges values that model_state has set.
  StateDict out = model_state(*inputs_.model, description_);
  if (const auto* average = std::as_const(update_).average()) put_average(*average, out);
  update_.save(out);
  progress_.save(out);
  out.merge(inputs_.training->state_dict(), "progress/loader");
  validation_.save(out);
  out.set_attribute("progress/settings", settings());
  out.set_attribute("progress/data", fingerprints());
  return out;
}

void RunCheckpoint::load(const StateDict& checkpoint, const std::string& path) try {
  if (!has_training_state(checkpoint))
    throw FileError(path, "progress",
                    fmt::format("[resume] {} holds a model, not a run: start a new run from it", path));
  if (const auto found = find_not_finite(checkpoint.tensors()))
    throw FileError(
        path, found->name,
        fmt::format("[resume] {}: {}: the run diverged: resume from an earlier file", path, found->text()));
  const StateDict run = checkpoint.sub("progress");
  // All checks that need no change of the run come first.
  check_same_run(run, path);
  WeightAverage* average = update_.average();
  FQ_CHECK(checkpoint.has_sub("average") == (average != nullptr), "resume",
           "{} has {} averages, because average_decay {}: use the same value", path,
           average ? "no" : "weight", average ? "was 0" : "was not 0");
  const RunPosition position = progress_.read(run, path);
  StateDict values = checkpoint, averages;
  // `values` has the live weights again, which training continues with.
  if (average) averages = take_average(values);
  // The model comes before the optimizer: learned ranges become parameters first.
  load_model_state(*inputs_.model, values, path);
  if (average) average->load_state(averages);
  update_.load(checkpoint);
  validation_.load(run);
  inputs_.training->load_state_dict(run.sub("loader"));
  progress_.load(position, run);
  if (path == inputs_.options.checkpoint.out) saved_ = position;
} catch (const ArgumentError& error) {
  // Messages of parts that do not know the file get its path.
  if (std::string_view(error.what()).find(path) != std::string_view::npos) throw;
  throw ArgumentError(fmt::format("{} (in {})", error.what(), path));
} catch (const nlohmann::json::exception& error) {
  throw FileError(path, "progress",
                  fmt::format("[resume] the progress in {} is damaged: {}", path, error.what()));
}

void RunCheckpoint::check_same_run(const StateDict& run, const std::string& path) const {
  constexpr std::string_view kRemedy = "or start a new run from its weights into another file";
  if (const auto there = read_object(run, "settings", path); !there.is_null()) {
    check_removed_settings(there, path);
    const auto others = differences(completed(there), settings());
    FQ_CHECK(others.empty(), "resume", "{} is of a run with other settings: {}: use the same settings, {}",
             path, fmt::join(others, "; "), kRemedy);
  }
  if (const auto data = read_object(run, "data", path); !data.is_null())
    for (const auto& [part, mark] : fingerprints().items())
      FQ_CHECK(data.contains(part) && data.at(part) == mark, "resume", "{} is of a run {}: use the same, {}",
               path, part == "teacher" ? "with another teacher" : fmt::format("on other {} data", part),
               kRemedy);
}

void RunCheckpoint::save(const std::string& path) {
  const StateDict all = state();
  // All ranks must call state(): a sharded optimizer gathers its parts.
  if (ranks_ == nullptr || ranks_->rank() == 0) save_state(path, all, "checkpoint");
  if (path == inputs_.options.checkpoint.out) saved_ = progress_.position();
  if (inputs_.callbacks.on_checkpoint) inputs_.callbacks.on_checkpoint(path);
}

void RunCheckpoint::save_last() {
  if (!inputs_.options.checkpoint.out.empty()) save(inputs_.options.checkpoint.out);
}

void RunCheckpoint::save_checked() {
  if (inputs_.options.checkpoint.out.empty()) return;
  check_finite();
  save_last();
}

void RunCheckpoint::save_best() {
  const std::string& out = inputs_.options.checkpoint.out;
  // A device file has no folder for the best checkpoint.
  if (!out.empty() && allows_sibling_files(out)) save(best_checkpoint_path(out));
  if (inputs_.options.validation.restore_best) best_ = copied(state());
}

void RunCheckpoint::restore_best() {
  const std::string& out = inputs_.options.checkpoint.out;
  if (!best_ && out.empty()) return;
  const std::string path = best_checkpoint_path(out);
  load_model_state(*inputs_.model, best_ ? *best_ : load_checkpoint(path), path);
}

// The values that `check_finite` examines: `state` without description, settings and progress.
std::vector<StateDict::Entry> RunCheckpoint::tensors() const {
  std::vector<StateDict::Entry> out;
  const auto add = [&out](const std::string& group, const auto& named) {
    for (const auto& [name, tensor] : named) out.emplace_back(group + name, tensor);
  };
  for (const auto& [name, value] : inputs_.model->named_parameters())
    out.emplace_back("parameters/" + name, value.tensor());
  add("buffers/", inputs_.model->named_buffers());
  for (const auto& [name, quantizer, aliases] : named_quantizers(*inputs_.model))
    if (quantizer->amax().defined()) out.emplace_back("quantizers/" + name + "/amax", quantizer->amax());
  if (const auto* average = std::as_const(update_).average())
    add("average/", average->state_dict().tensors());
  StateDict state;
  update_.save(state);
  for (const char* group : {"adapters", "optimizer"})
    add(group + std::string("/"), state.sub(group).tensors());
  return out;
}

void RunCheckpoint::check_finite() const {
  if (const auto found = find_not_finite(tensors()))
    throw NumericError(fmt::format("[train] {}: use a smaller learning rate, or clip_norm{}", found->text(),
                                   progress_.place()));
}

std::string RunCheckpoint::last_saved() const {
  const std::string& out = inputs_.options.checkpoint.out;
  if (out.empty()) return {};
  if (!saved_) return fmt::format("; this run has not written {}", out);
  if (saved_->step == 0) return fmt::format("; {} is of before the first step", out);
  if (saved_->count > 0)
    return fmt::format("; {} is of step {}, in epoch {}", out, saved_->step, saved_->epoch + 1);
  return fmt::format("; {} is of the end of epoch {}", out, saved_->epoch);
}

}  // namespace fq::detail
