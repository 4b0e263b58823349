#include "fakequant/train/loop/detail/step_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/leaf_scopes.h"
#include "fakequant/core/profile.h"
#include "fakequant/core/random.h"
#include "fakequant/core/variable.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/quantizer/detail/position_mask.h"
#include "fakequant/train/loop/detail/evaluation.h"
#include "fakequant/train/loop/detail/finite.h"

namespace fq::detail {

namespace {

constexpr std::int64_t kMostKept = std::int64_t{256} << 20;  // most bytes to cache

std::vector<std::int64_t> row_range(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(end - first));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

void copy_rows(const Tensor& from, std::int64_t from_row, Tensor& to, std::int64_t to_row,
               std::int64_t count) {
  const auto row = static_cast<std::size_t>(from.nbytes() / from.dim(0));
  std::memcpy(static_cast<std::byte*>(to.mutable_raw()) + static_cast<std::size_t>(to_row) * row,
              static_cast<const std::byte*>(from.raw()) + static_cast<std::size_t>(from_row) * row,
              static_cast<std::size_t>(count) * row);
}

Shape with_rows(Shape shape, std::int64_t rows) {
  shape[0] = rows;
  return shape;
}

}  // namespace

Teacher::Teacher(std::shared_ptr<Module> model, const DataLoader& training, Device device)
    : model_(std::move(model)),
      training_(training),
      device_(device),
      rows_(training.options().batch_size),
      // Augmented samples differ in every epoch.
      keeps_(!training.options().augment.any()),
      has_(static_cast<std::size_t>((training.data().size() + rows_ - 1) / rows_), false) {
  model_->to(device);
  model_->eval();
}

Tensor Teacher::run(const Tensor& x) const {
  const ProfileScope profile("teacher");
  const NoGrad no_grad;
  return (*model_)(Variable(x.to(device_))).tensor().to(Layout::row_major);
}

// Divides, because the product of row bytes and samples could overflow.
bool Teacher::keeps(const Tensor& some) const {
  return some.nbytes() / some.dim(0) <= kMostKept / training_.data().size();
}

bool Teacher::fill(std::int64_t part) {
  if (has_[static_cast<std::size_t>(part)]) return true;
  // Parts are fixed rows of the data set, not batches: a shuffled or resumed run computes the same parts.
  const std::int64_t first = part * rows_, end = std::min(first + rows_, training_.data().size());
  const Tensor some = run(training_.data().read(row_range(first, end)).x).to(Device::cpu());
  // The first part shows the size of an output.
  if (!all_.defined() && !keeps(some)) return false;
  if (!all_.defined()) all_ = Tensor::empty(with_rows(some.shape(), training_.data().size()), some.dtype());
  copy_rows(some, 0, all_, first, end - first);
  has_[static_cast<std::size_t>(part)] = true;
  return true;
}

Tensor Teacher::outputs(const Batch& batch) {
  // Once outputs are too large, the cache is not tried again.
  keeps_ = keeps_ && std::ranges::all_of(batch.rows, [this](auto row) { return fill(row / rows_); });
  if (!keeps_ || batch.rows.empty()) return run(batch.x);
  Tensor out = Tensor::empty(with_rows(all_.shape(), batch.size()), all_.dtype());
  for (std::size_t i = 0; i < batch.rows.size(); ++i)
    copy_rows(all_, batch.rows[i], out, static_cast<std::int64_t>(i), 1);
  return out.to(device_);
}
namespace {

// Captured passes replace gradients instead of adding to them, report no leaves to the ranks, and read no
// mask of a batch.
Passes::Options pass_options(const TrainerOptions& options) {
  return {.label_smoothing = options.objective.label_smoothing,
          .loss = options.objective.loss,
          .distillation = options.objective.distillation,
          .capture = options.execution.capture && options.update.accumulation == 1 &&
                     !options.distributed.ranks && options.low_rank.rank == 0 && !options.ranges.mask};
}

/// Returns the padding mask of a batch if the step updates running ranges.
std::optional<PositionMask> padding_mask(const BatchMask& mask, const Batch& batch,
                                         const RangePolicy::Phase& phase) {
  if (!mask || !phase.running) return std::nullopt;
  return PositionMask(mask(batch));
}

}  // namespace

StepGradients::StepGradients(const RunInputs& inputs, RunProgress& progress, const RangePolicy& ranges)
    : inputs_(inputs),
      progress_(progress),
      ranges_(ranges),
      passes_(inputs.model, pass_options(inputs.options)) {
  const auto& [model, training, validation, options, callbacks] = inputs;
  if (options.distributed.ranks)
    shared_.emplace(options.distributed.ranks, *model, options.ranges.amax == AmaxMode::running,
                    options.distributed.reduction);
  if (options.objective.distillation.teacher && options.objective.distillation.weight > 0)
    teacher_.emplace(options.objective.distillation.teacher, *training, model->device());
}

bool StepGradients::has_mixed_classes() const {
  const LoaderOptions& how = inputs_.training->options();
  return how.augment.mixes() && !how.number_labels && inputs_.training->data().classes() > 0;
}

SharedStep::BatchResult StepGradients::run(const Batch& batch) {
  if (batch.x.device().is_cpu())  // checked before the batch changes running statistics
    if (const std::string found = not_finite_sample(batch); !found.empty())
      throw NumericError("[train] " + found);
  const RunPosition& at = progress_.position();
  const auto phase = ranges_.phase(at.step);
  const RangePolicy::Scope scope(ranges_, phase);
  const BackwardScope numbers(inputs_.options.execution.backward);
  // Dropout depends on the seed and the batch number only: resumed runs and ranks draw the same numbers.
  const RandomScope random(at.seed, static_cast<std::uint64_t>(at.batch));
  const auto padding = padding_mask(inputs_.options.ranges.mask, batch, phase);
  const ScopedValue<const PositionMask*> mask(context().position_mask, padding ? &*padding : nullptr);
  const auto [loss, logits, predictions] =
      passes_.forward(batch, phase, teacher_ ? teacher_->outputs(batch) : Tensor());
  FQ_CHECK(!padding || padding->matches() > 0, "train",
           "mask: no tensor of the network has its positions: use the mask of the sequences");
  const bool mixed = has_mixed_classes();
  // Accuracy needs classes: labels, or the largest share of a mixed sample.
  const bool counted = logits.defined() && (mixed || is_classes(logits, batch.y));
  // The device copies the loss to the host during the backward pass; the host waits for it afterwards.
  Readback read_loss(loss);
  std::optional<Readback> read_predictions;
  if (counted) read_predictions.emplace(predictions.defined() ? predictions : predicted_classes(logits));
  // The gradient of a mean times the number of samples is the gradient of the sum. Sums over batches of
  // different size stay correct.
  passes_.backward(has_mean_loss()
                       ? Tensor()
                       : Tensor::full({}, static_cast<double>(batch.size()), loss.dtype(), loss.device()));
  const double value = read_loss.get().item();
  if (!std::isfinite(value))
    throw NumericError(
        fmt::format("[train] the loss is {}: use a smaller learning rate, or clip_norm", value));
  if (!counted) return {value, 0, batch.size()};
  return {value, count_equal(read_predictions->get(), mixed ? fq::predictions(batch.y) : batch.y),
          batch.size()};
}

std::int64_t StepGradients::batches_of_step() const {
  const DataLoader& training = *inputs_.training;
  const std::int64_t size = training.options().batch_size;
  // The loader has already counted the batch that is added.
  const std::int64_t begun = (training.position() + size - 1) / size;
  return std::min(inputs_.options.update.accumulation, batches_ + 1 + training.batches_per_epoch() - begun);
}

NumericError StepGradients::explained(const NumericError& error, const Batch& batch) const {
  const std::string found = not_finite_sample(batch);
  return NumericError((found.empty() ? error.what() : "[train] " + found) + progress_.place());
}

void StepGradients::run_shared(const Batch& batch) {
  if (batch.passed_over > 0) return shared_->skip_batch();
  try {
    shared_->begin_batch(batches_of_step());
    const LeafScope leaves([this](const Gradient& leaf) { shared_->ready(leaf); });
    shared_->end_batch(run(batch));
  } catch (const NumericError& error) {
    // Not thrown here: the other ranks wait in `finish`, where all ranks throw.
    shared_->fail(std::make_exception_ptr(explained(error, batch)));
  }
}

void StepGradients::add(const Batch& batch) {
  FQ_CHECK(batch.passed_over > 0 || batch.y.defined(), "train", "the training data has no labels");
  if (shared_) {
    run_shared(batch);
  } else {
    try {
      progress_.add_result(run(batch));
    } catch (const NumericError& error) {
      throw explained(error, batch);
    }
  }
  progress_.add_batch(batch.size());
  ++batches_;
  samples_ += batch.size();
}

double StepGradients::finish() {
  if (shared_) {
    bool stop = inputs_.options.execution.stop != nullptr && *inputs_.options.execution.stop;
    // Results are added in the order of the batches, so that the mean loss has the bits of one process.
    for (const auto& result : shared_->finish(stop)) progress_.add_result(result);
    stopped_ = stop;
  }
  return has_mean_loss() ? 1 : 1 / static_cast<double>(samples_);
}

bool StepGradients::stop_requested() const {
  return shared_ ? stopped_ : inputs_.options.execution.stop != nullptr && *inputs_.options.execution.stop;
}

}  // namespace fq::detail
