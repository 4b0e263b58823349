#include "fakequant/train/loop/detail/passes.h"

#include <algorithm>
#include <utility>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/device_traits.h"
#include "fakequant/core/log.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/core/profile.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/loop/detail/evaluation.h"
#include "fakequant/train/losses.h"

namespace fq::detail {
namespace {

enum Part : std::size_t { kForward, kBackward };

}  // namespace

Passes::Passes(std::shared_ptr<Module> model, const Options& options)
    : model_(std::move(model)), options_(options), parameters_(model_->parameters()) {
  visit_quantizers(*model_, [&](const NamedQuantizer& entry) { quantizers_.push_back(entry.quantizer); });
}

bool Passes::waits_for_range() const {
  return std::ranges::any_of(quantizers_,
                             [](const auto* q) { return q->params().enabled && q->range().is_zero(); });
}

void Passes::forget() {
  captured_.reset();
  last_.reset();
  passes_.reset();
  input_ = {};
  outputs_ = {};
  gradients_.clear();
}

/// Labels are classes, or target probabilities if samples were mixed.
Variable Passes::label_loss(const Variable& logits, const Tensor& labels) const {
  if (options_.loss) return options_.loss(logits, labels);
  if (is_floating(labels.dtype()))
    return losses::soft_cross_entropy(logits, labels, {.label_smoothing = options_.label_smoothing});
  return ops::cross_entropy(logits, labels, options_.label_smoothing);
}

// The mean of both losses, weighted by the share of the teacher. A share of 1 computes no label loss.
Variable Passes::batch_loss(const Variable& logits, const Input& batch) const {
  const double weight = options_.distillation.weight;
  if (!batch.followed.defined() || weight == 0) return label_loss(logits, batch.y);
  const Variable followed = distillation_loss(logits, batch.followed, options_.distillation);
  if (weight == 1) return followed;
  return ops::add(ops::scale(label_loss(logits, batch.y), 1 - weight), ops::scale(followed, weight));
}

Passes::Outputs Passes::run(const Input& batch) {
  // One launch for the codes of all weights instead of one per layer.
  if (device_traits(batch.x.device()).launches) quantize_weights(*model_);
  const Variable logits = (*model_)(Variable(batch.x));
  loss_ = batch_loss(logits, batch);
  FQ_CHECK(loss_.defined() && loss_.numel() == 1, "train", "the loss is {}: it must be one number",
           loss_.defined() ? to_string(loss_.shape()) : "undefined");
  // Float labels are shares of classes only for the built-in loss.
  const bool shares = is_floating(batch.y.dtype()) && !options_.loss;
  // Logits of more axes are not converted: the loss of a language model reads its sums.
  if (logits.rank() != 2) return {loss_.tensor(), {}, {}};
  const bool classes = shares || is_classes(logits.tensor(), batch.y);
  return {loss_.tensor(), logits.tensor(), classes ? predicted_classes(logits.tensor()) : Tensor()};
}

/// Returns whether the captured passes fit this batch. Captures them if the batch before had the same shapes
/// and phase: its run has already allocated everything that is allocated once.
bool Passes::repeats(const Input& batch, const RangePolicy::Phase& phase) {
  // A profiler measures single launches, which a graph hides.
  if (!options_.capture || !device_traits(batch.x.device()).captures || profiler() != nullptr) return false;
  // A range that is still zero makes the host read values, which a capture cannot.
  if (waits_for_range()) return last_.reset(), false;
  Key key{batch.x.shape(), batch.y.shape(), phase};
  // A capture pays off only for shapes that repeat. A key whose capture failed is not tried again.
  if (captured_ != key && last_ == key && refused_ != key) {
    forget();
    try {
      capture(batch);
      captured_ = key;
    } catch (const CannotCapture& error) {
      if (!std::exchange(warned_, true))
        log(LogLevel::warning,
            fmt::format("the step is not captured, every kernel is launched by itself: {}", error.what()));
      forget();
      // The failed capture recorded no work: its gradients have no values.
      for (auto& parameter : parameters_) parameter.zero_grad();
      refused_ = key;
      // Cached codes of the failed capture were never computed.
      visit_quantizers(*model_, [](const NamedQuantizer& entry) { entry.quantizer->forget(); });
    }
  }
  last_ = std::move(key);
  return captured_ == last_;
}

void Passes::capture(const Input& batch) {
  for (auto& parameter : parameters_) {
    parameter.zero_grad();
    parameter.mutable_tensor().mark_written();  // so that the captured work computes its codes
  }
  // Capturing must draw no random numbers of later passes.
  const RandomScope drawn(random_stream().seed, random_stream().step);
  const Tensor& followed = batch.followed;
  // Captured work reads fixed addresses: each batch is copied there.
  input_ = {batch.x.clone(), batch.y.clone(), followed.defined() ? followed.clone() : Tensor()};
  passes_ = std::make_unique<Capture>(batch.x.device());
  // Two graphs, so that the loss can be read between them.
  passes_->add([this] { outputs_ = run(input_); });
  passes_->add([this] { std::exchange(loss_, {}).backward(); });
  for (auto& parameter : parameters_) {
    gradients_.push_back(parameter.requires_grad() ? parameter.grad() : Tensor());
    parameter.zero_grad();
  }
}

Passes::Outputs Passes::forward(const Batch& batch, const RangePolicy::Phase& phase, const Tensor& followed) {
  const Device device = model_->device();
  const Input own{batch.x.to(device), batch.y.to(device), followed};
  if (!repeats(own, phase)) return run(own);
  input_.x.copy_from(own.x);
  input_.y.copy_from(own.y);
  if (followed.defined()) input_.followed.copy_from(followed);
  passes_->launch(kForward);
  return outputs_;
}

void Passes::backward(const Tensor& seed) {
  // `run` outside of a capture leaves the loss with its tape.
  if (loss_.defined()) return std::exchange(loss_, {}).backward(seed);
  FQ_CHECK(!seed.defined(), "train", "captured passes accept no seed: set capture to false");
  passes_->launch(kBackward);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    // The graph writes gradients into the tensors of the capture; the optimizer clears only the handles.
    if (gradients_[i].defined()) parameters_[i].set_grad(gradients_[i]);
}

}  // namespace fq::detail
