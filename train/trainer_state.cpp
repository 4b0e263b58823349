#include "fakequant/core/check.h"
#include "fakequant/train/checkpoint.h"
#include "fakequant/train/trainer_body.h"

namespace fq {
namespace {

/// `parameters/` and `buffers/` become the averages, by which a reader evaluates; what training goes on with
/// is below `average/`.
void put_average(const WeightAverage& average, StateDict& state) {
  const StateDict others = average.state_dict();
  StateDict aside;
  for (const auto& [name, other] : others.tensors()) {
    aside.set(name, average.swapped() ? other : state.at(name));
    if (!average.swapped()) state.set(name, other);
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

Progress progress_of(const StateDict& state) {
  Progress p;
  p.epoch = state.attribute("epoch").get<std::int64_t>();
  p.step = state.attribute("step").get<std::int64_t>();
  p.batch = state.attribute("batch").get<std::int64_t>();
  p.seed = state.attribute("seed").get<std::uint64_t>();
  p.loss_sum = state.attribute("loss_sum").get<double>();
  p.correct = state.attribute("correct").get<std::int64_t>();
  p.count = state.attribute("count").get<std::int64_t>();
  return p;
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
  out.merge(progress_state(progress), "progress");
  out.merge(training->state_dict(), "progress/loader");
  out.merge(early.state_dict(), "progress/validation");
  out.set_attribute("progress/schedule", options.schedule.kind);
  return out;
}

void Trainer::Body::load(const StateDict& checkpoint, const std::string& path) try {
  if (!has_training_state(checkpoint))
    throw FileError(path, "progress",
                    fmt::format("[resume] {} holds a model, not a run: start a new run from it", path));
  StateDict values = checkpoint;
  FQ_CHECK(checkpoint.has_sub("average") == average.has_value(), "resume",
           "{} has {} averages: use the options that it was made with", path, average ? "no" : "weight");
  StateDict averages;
  if (average) averages = take_average(values);
  const Progress loaded = progress_of(checkpoint.sub("progress"));
  load_model_state(*model, values, path);
  if (average) average->load_state(averages);
  optimizer->load_state(checkpoint.sub("optimizer"));
  early.load_state(checkpoint.sub("progress/validation"));
  training->load_state_dict(checkpoint.sub("progress/loader"));
  progress = loaded;
  waiting_batches = waiting_samples = 0;
} catch (const nlohmann::json::exception& error) {
  throw FileError(path, "progress",
                  fmt::format("[resume] the progress in {} is damaged: {}", path, error.what()));
}

void Trainer::Body::save(const std::string& path) {
  save_checkpoint(path, state());
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
