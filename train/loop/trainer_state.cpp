#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/io/state_file.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/loop/detail/run_settings.h"
#include "fakequant/train/loop/detail/trainer_body.h"
#include "fakequant/train/ranks/detail/same_everywhere.h"

namespace fq {
namespace {

/// A learned range is in a file twice: as a parameter, and with its quantizer.
void put_range(const std::string& parameter, const Tensor& value, StateDict& state) {
  constexpr std::string_view kGroup = "parameters/", kName = ".amax";
  if (!parameter.starts_with(kGroup) || !parameter.ends_with(kName)) return;
  const auto length = parameter.size() - kGroup.size() - kName.size();
  const std::string range = "quantizers/" + parameter.substr(kGroup.size(), length) + "/amax";
  if (state.contains(range)) state.set(range, value);
}

/// `parameters/` and `buffers/` become the averages, by which a reader evaluates, and so do ranges; what
/// training goes on with is below `average/`.
void put_average(const WeightAverage& average, StateDict& state) {
  const StateDict others = average.state_dict();
  StateDict aside;
  for (const auto& [name, other] : others.tensors()) {
    aside.set(name, average.swapped() ? other : state.at(name));
    if (average.swapped()) continue;
    state.set(name, other);
    put_range(name, other, state);
  }
  aside.set_attribute("updates", others.attribute("updates"));
  state.merge(aside, "average");
}

/// Undoes `put_average` in `state` and returns the averages.
StateDict take_average(StateDict& state) {
  StateDict averages;
  const StateDict aside = state.sub("average");
  for (const auto& [name, live] : aside.tensors()) {
    averages.set(name, state.at(name));
    state.set(name, live);
  }
  averages.set_attribute("updates", aside.attribute("updates"));
  return averages;
}

StateDict progress_state(const Progress& p) {
  StateDict out;
  out.set_attribute("epoch", p.epoch);
  out.set_attribute("step", p.step);
  out.set_attribute("batch", p.batch);
  out.set_attribute("seed", p.seed);
  out.set_attribute("loss_sum", p.loss_sum);
  out.set_attribute("correct", p.correct);
  out.set_attribute("count", p.count);
  return out;
}

nlohmann::json length_of(const TrainerOptions& options) {
  return options.steps > 0 ? nlohmann::json{{"steps", options.steps}}
                           : nlohmann::json{{"epochs", options.epochs}};
}

StateDict copied(const StateDict& state) {
  StateDict out;
  for (const auto& [name, value] : state.attributes().items()) out.set_attribute(name, value);
  for (const auto& [name, tensor] : state.tensors()) out.set(name, tensor.clone());
  return out;
}

}  // namespace

StateDict Trainer::Body::state() const {
  StateDict out = model_state(*model, description);
  if (average) put_average(*average, out);
  out.merge(optimizer->state_dict(), "optimizer");
  if (adapters) out.merge(adapters->state_dict(), "adapters");
  out.merge(progress_state(progress), "progress");
  out.set_attribute("progress/length", length_of(options));
  out.merge(training->state_dict(), "progress/loader");
  out.merge(early.state_dict(), "progress/validation");
  if (plateau) out.merge(plateau->state_dict(), "progress/plateau");
  out.set_attribute("progress/settings", detail::run_settings(options, *training, validation.get()));
  out.set_attribute("progress/data", fingerprints());
  return out;
}

const nlohmann::json& Trainer::Body::fingerprints() const {
  if (!data_marks) {
    auto& marks = data_marks.emplace(nlohmann::json::object());
    marks["training"] = training->data().fingerprint();
    if (validation) marks["validation"] = validation->data().fingerprint();
    if (options.distillation.teacher)
      marks["teacher"] = detail::fingerprint_of(*options.distillation.teacher);
  }
  return *data_marks;
}

void Trainer::Body::check_same_run_everywhere() const {
  nlohmann::json own{{"settings", detail::run_settings(options, *training, validation.get())},
                     {"epochs", options.epochs},
                     {"steps", options.steps},
                     {"step", progress.step},
                     {"model", detail::fingerprint_of(*model)},
                     {"threads", detail::threads()}};
  if (!options.out.empty()) own["data"] = fingerprints();
  detail::check_same_everywhere(shared->ranks(), own);
}

void Trainer::Body::load(const StateDict& checkpoint, const std::string& path) try {
  if (!has_training_state(checkpoint))
    throw FileError(path, "progress",
                    fmt::format("[resume] {} holds a model, not a run: start a new run from it", path));
  if (const auto found = detail::find_not_finite(checkpoint.tensors()))
    throw FileError(
        path, found->name,
        fmt::format("[resume] {}: {}: the run diverged: go on from an earlier file", path, found->text()));
  const StateDict run = checkpoint.sub("progress");
  check_same_run(run, path);
  FQ_CHECK(checkpoint.has_sub("average") == average.has_value(), "resume",
           "{} has {} averages, so average_decay {}: give the same", path, average ? "no" : "weight",
           average ? "was 0" : "was not 0");
  const Progress loaded = read_progress(run, path);
  StateDict values = checkpoint, averages;
  if (average) averages = take_average(values);
  load_model_state(*model, values, path);
  if (average) average->load_state(averages);
  optimizer->load_state(checkpoint.sub("optimizer"));
  if (adapters) adapters->load_state(checkpoint.sub("adapters"));
  early.load_state(run.sub("validation"));
  if (plateau) plateau->load_state(run.sub("plateau"));
  training->load_state_dict(run.sub("loader"));
  progress = loaded;
  if (path == options.out) saved = loaded;
  waiting_batches = waiting_samples = 0;
} catch (const ArgumentError& error) {
  if (std::string_view(error.what()).find(path) != std::string_view::npos) throw;
  throw ArgumentError(fmt::format("{} (in {})", error.what(), path));
} catch (const nlohmann::json::exception& error) {
  throw FileError(path, "progress",
                  fmt::format("[resume] the progress in {} is damaged: {}", path, error.what()));
}

void Trainer::Body::save(const std::string& path) {
  const StateDict all = state();
  if (!shared || shared->ranks().rank() == 0) save_state(path, all, "checkpoint");
  if (path == options.out) saved = progress;
  if (callbacks.on_checkpoint) callbacks.on_checkpoint(path);
}

void Trainer::Body::keep_best() {
  if (!options.out.empty() && has_files_beside(options.out)) save(best_checkpoint_path(options.out));
  if (options.restore_best) best = copied(state());
}

void Trainer::Body::restore_best() {
  if (!best && options.out.empty()) return;
  const std::string path = best_checkpoint_path(options.out);
  load_model_state(*model, best ? *best : load_checkpoint(path), path);
}

}  // namespace fq
