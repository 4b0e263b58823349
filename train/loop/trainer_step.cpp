#include <algorithm>
#include <cmath>
#include <optional>

#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/leaf_scope.h"
#include "fakequant/core/profile.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/quantizer/detail/position_mask.h"
#include "fakequant/train/loop/detail/answers.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/loop/detail/score_sum.h"
#include "fakequant/train/loop/detail/trainer_body.h"
#include "fakequant/train/optimizer.h"
#include "fakequant/train/qat_defaults.h"
#include "fakequant/train/ranks/shares.h"

namespace fq {

namespace {

/// Returns the mask of a step with running ranges.
std::optional<detail::PositionMask> padding_of(const BatchMask& mask, const Batch& batch,
                                               const detail::Switches::Phase& phase) {
  if (!mask || !phase.running) return std::nullopt;
  return detail::PositionMask(mask(batch));
}

}  // namespace

detail::Switches::Phase Trainer::Body::phase() const {
  const auto passed = [this](std::int64_t limit) { return limit >= 0 && progress.step >= limit; };
  return {.quantizing = progress.step >= options.quant_start,
          .running = options.amax == AmaxMode::running && !passed(options.freeze_amax_after),
          .bn_frozen = passed(options.freeze_bn_after),
          .amax_momentum = options.amax_momentum};
}

bool Trainer::Body::mixed_classes() const {
  const auto& how = training->options();
  return how.augment.mixes() && !how.number_labels && training->data().classes() > 0;
}

detail::SharedStep::Told Trainer::Body::forward_backward(const Batch& batch) {
  if (batch.x.device().is_cpu())  // before running statistics take it in
    if (const std::string found = detail::not_finite_sample(batch); !found.empty())
      throw NumericError("[train] " + found);
  const auto switched = phase();
  const detail::PhaseScope scope(switches, switched);
  const BackwardScope numbers(options.backward);
  const RandomScope random(progress.seed, static_cast<std::uint64_t>(progress.batch));
  const auto padding = padding_of(options.mask, batch, switched);
  const ScopedValue<const detail::PositionMask*> mask(detail::position_mask(), padding ? &*padding : nullptr);
  const auto [loss, logits, answered] =
      passes.forward(batch, switched, teacher ? teacher->outputs(batch) : Tensor());
  FQ_CHECK(!padding || padding->matches() > 0, "train",
           "mask: no tensor of the network has its positions: give the mask of the sequences");
  const bool counted = mixed_classes() ? logits.rank() == 2 : detail::is_classes(logits, batch.y);
  detail::Readback read_loss(loss);
  std::optional<detail::Readback> read_answers;
  if (counted) read_answers.emplace(answered.defined() ? answered : detail::answers_there(logits));
  if (options.accumulation == 1 && !shared)
    passes.backward();
  else
    passes.backward(Tensor::full({}, static_cast<double>(batch.size()), loss.dtype(), loss.device()));
  const double value = read_loss.get().item();
  if (!std::isfinite(value))
    throw NumericError(
        fmt::format("[train] the loss is {}: use a smaller learning rate, or clip_norm", value));
  if (!counted) return {value, 0, batch.size()};
  const Tensor labels = mixed_classes() ? answers(batch.y) : batch.y;
  return {value, detail::count_equal(read_answers->get(), labels), batch.size()};
}

std::int64_t Trainer::Body::batches_of_step() const {
  const std::int64_t size = training->options().batch_size;
  const std::int64_t begun = (training->position() + size - 1) / size;
  return std::min(options.accumulation, waiting_batches + 1 + training->batches_per_epoch() - begun);
}

void Trainer::Body::train_shared(const Batch& batch) {
  if (batch.passed_over > 0) return shared->pass_over();
  try {
    shared->begin_batch(batches_of_step());
    const detail::LeafScope leaves([this](const detail::Gradient& leaf) { shared->ready(leaf); });
    shared->end_batch(forward_backward(batch));
  } catch (const NumericError& error) {
    shared->fail(std::make_exception_ptr(explained(error, batch)));
  }
}

void Trainer::Body::gather_step() {
  bool stop = options.stop != nullptr && *options.stop;
  for (const auto& told : shared->finish(stop)) {
    progress.loss_sum += told.loss * static_cast<double>(told.samples);
    progress.correct += told.correct;
  }
  asked_to_stop = stop;
}

void Trainer::Body::train_batch(const Batch& batch) {
  FQ_CHECK(batch.passed_over > 0 || batch.y.defined(), "train", "the training data has no labels");
  if (shared) {
    train_shared(batch);
  } else {
    try {
      const auto told = forward_backward(batch);
      progress.loss_sum += told.loss * static_cast<double>(told.samples);
      progress.correct += told.correct;
    } catch (const NumericError& error) {
      throw explained(error, batch);
    }
  }
  progress.count += batch.size();
  ++progress.batch;
  ++waiting_batches;
  waiting_samples += batch.size();
  pace.images += batch.size();
}

double Trainer::Body::highest_rate() const {
  return short_run_rate(options.optimizer.learning_rate, total_steps(), options.full_rate_steps);
}

void Trainer::Body::update_parameters() {
  const ProfileScope profile("optimizer");
  double scale = options.accumulation == 1 && !shared ? 1 : 1 / static_cast<double>(waiting_samples);
  if (adapters) adapters->take_gradients();
  if (options.clip_norm > 0) {
    const double norm = gradient_norm(parameters);
    scale *= clip_factor(norm * scale, options.clip_norm);
  }
  const double fallen = plateau ? plateau->factor() : 1;
  check_gradients();
  optimizer->set_learning_rate(highest_rate() * schedule(progress.step) * fallen);
  ranges.before();
  optimizer->step(scale);
  if (adapters) adapters->merge();
  ranges.after();
  optimizer->zero_grad();
  if (average) average->update();
}

void Trainer::Body::step() {
  if (shared) gather_step();
  update_parameters();
  waiting_batches = waiting_samples = 0;
  ++progress.step;
  ++pace.steps;
  report_step();
  if (options.out.empty() || options.save_every == 0 || progress.step % options.save_every != 0) return;
  check_finite();
  save(options.out);
}

void Trainer::Body::report_step() const {
  if (!callbacks.on_step) return;
  const double seconds = std::max(seconds_since(pace.epoch_start), 1e-9);
  const double per_step = seconds_since(pace.start) / static_cast<double>(pace.steps);
  callbacks.on_step({.epoch = progress.epoch,
                     .epochs = epochs(),
                     .step = progress.step,
                     .steps = total_steps(),
                     .loss = progress.mean_loss(),
                     .accuracy = progress.accuracy(),
                     .learning_rate = optimizer->learning_rate(),
                     .images_per_second = static_cast<double>(pace.images) / seconds,
                     .seconds_left = per_step * static_cast<double>(total_steps() - progress.step),
                     .loader_share = pace.loading / seconds});
}

}  // namespace fq
