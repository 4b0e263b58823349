#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/detail/whole_number.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/loop/detail/run_settings.h"
#include "fakequant/train/loop/detail/trainer_body.h"

namespace fq {
namespace {

constexpr std::int64_t kSmall = 4096;

std::int64_t count_in(const StateDict& state, const char* name) {
  return detail::whole_number(state, name, "resume");
}

Progress progress_of(const StateDict& state) {
  Progress p;
  p.epoch = count_in(state, "epoch");
  p.step = count_in(state, "step");
  p.batch = count_in(state, "batch");
  p.seed = detail::seed_number(state, "resume");
  p.loss_sum = state.attribute("loss_sum").get<double>();
  p.correct = count_in(state, "correct");
  p.count = count_in(state, "count");
  return p;
}

/// Null where there is none: files of before it was kept.
nlohmann::json object_in(const StateDict& run, const char* name, const std::string& path) {
  if (!run.has_attribute(name)) return nullptr;
  const auto& value = run.attribute(name);
  if (!value.is_object())
    throw FileError(
        path, "progress",
        fmt::format("[resume] the progress in {} is damaged: {} is {}", path, name, value.dump()));
  return value;
}

/// A run is where its loader is, or at the end of the loader's last epoch with the validation to come.
void check_place(const Progress& p, const StateDict& loader, const DataLoader& data) {
  const std::int64_t epoch = count_in(loader, "epoch"), position = count_in(loader, "position");
  FQ_CHECK(epoch == p.epoch || (epoch == p.epoch + 1 && position == 0), "resume",
           "the progress is damaged: {} epochs are done, and the data is at sample {} of epoch {}", p.epoch,
           position, epoch + 1);
  const std::int64_t batch = data.options().batch_size, size = data.data().size();
  if (count_in(loader, "size") != size || count_in(loader, "batch_size") != batch)
    return;                                                              // the loader says so
  const std::int64_t before = p.batch - (position + batch - 1) / batch;  // batches of the epochs before
  FQ_CHECK(position <= size && before % data.batches_per_epoch() == 0 &&
               before / data.batches_per_epoch() == epoch && p.step <= p.batch,
           "resume",
           "the progress is damaged: {} batches in {} steps, and the data is at sample {} of epoch {}",
           p.batch, p.step, position, epoch + 1);
  FQ_CHECK(p.correct <= p.count && p.count <= size && std::isfinite(p.loss_sum), "resume",
           "the progress is damaged: {} of {} samples were right, with a sum of losses of {}", p.correct,
           p.count, p.loss_sum);
}

}  // namespace

NumericError Trainer::Body::explained(const NumericError& error, const Batch& batch) const {
  const std::string found = detail::not_finite_sample(batch);
  return NumericError((found.empty() ? error.what() : "[train] " + found) + place());
}

void Trainer::Body::check_gradients() const {
  if (options.clip_norm > 0 || !model->device().is_cpu()) return;  // the norm tells; a GPU is not waited for
  std::vector<Variable> small;  // biases and norms, which sum up all that comes back through their layer
  std::ranges::copy_if(parameters, std::back_inserter(small),
                       [](const Variable& parameter) { return parameter.numel() <= kSmall; });
  if (std::isfinite(gradient_norm(small.empty() ? parameters : small))) return;
  std::vector<StateDict::Entry> given;
  for (const auto& [name, value] : (adapters ? adapters->parameters() : *model).named_parameters())
    if (value.grad().defined()) given.emplace_back("the gradient of " + name, value.grad());
  if (const auto found = detail::find_not_finite(given))
    throw NumericError(
        fmt::format("[train] {}: use a smaller learning rate, or clip_norm{}", found->text(), place()));
}

std::string Trainer::Body::place() const {
  return fmt::format(" (step {}, epoch {})", progress.step, progress.epoch + 1);
}

std::string Trainer::Body::last_saved() const {
  if (options.out.empty()) return {};
  if (!saved) return fmt::format("; this run has not written {}", options.out);
  if (saved->step == 0) return fmt::format("; {} is of before the first step", options.out);
  if (saved->count > 0)
    return fmt::format("; {} is of step {}, in epoch {}", options.out, saved->step, saved->epoch + 1);
  return fmt::format("; {} is of the end of epoch {}", options.out, saved->epoch);
}

std::vector<StateDict::Entry> Trainer::Body::numbers() const {
  std::vector<StateDict::Entry> out;
  const auto add = [&](const std::string& group, const auto& named) {
    for (const auto& [name, tensor] : named) out.emplace_back(group + name, tensor);
  };
  for (const auto& [name, value] : model->named_parameters())
    out.emplace_back("parameters/" + name, value.tensor());
  add("buffers/", model->named_buffers());
  for (const auto& [name, quantizer, aliases] : named_quantizers(*model))
    if (quantizer->amax().defined()) out.emplace_back("quantizers/" + name + "/amax", quantizer->amax());
  if (average) add("average/", average->state_dict().tensors());
  if (adapters) add("adapters/", adapters->state_dict().tensors());
  add("optimizer/", optimizer->state_dict().tensors());
  return out;
}

void Trainer::Body::check_finite() const {
  if (const auto found = detail::find_not_finite(numbers()))
    throw NumericError(
        fmt::format("[train] {}: use a smaller learning rate, or clip_norm{}", found->text(), place()));
}

void Trainer::Body::check_same_run(const StateDict& run, const std::string& path) const {
  constexpr std::string_view kWayOut = "or start a new run from its weights into another file";
  if (const auto settings = object_in(run, "settings", path); !settings.is_null()) {
    detail::check_removed_settings(settings, path);
    const auto here = detail::run_settings(options, *training, validation.get());
    const auto others = detail::differences(detail::completed(settings), here);
    FQ_CHECK(others.empty(), "resume", "{} is of a run with other settings: {}: give the same settings, {}",
             path, fmt::join(others, "; "), kWayOut);
  }
  if (const auto data = object_in(run, "data", path); !data.is_null())
    for (const auto& [part, mark] : fingerprints().items())
      FQ_CHECK(data.contains(part) && data.at(part) == mark, "resume", "{} is of a run {}: give the same, {}",
               path, part == "teacher" ? "with another teacher" : fmt::format("on other {} data", part),
               kWayOut);
}

Progress Trainer::Body::read_progress(const StateDict& run, const std::string& path) const try {
  const Progress read = progress_of(run);
  check_place(read, run.sub("loader"), *training);
  return read;
} catch (const ArgumentError& error) {
  throw FileError(path, "progress", fmt::format("{} (in {})", error.what(), path));
}

}  // namespace fq
