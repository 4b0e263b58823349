#include "fakequant/train/calibration/detail/observer_scope.h"

#include <algorithm>
#include <optional>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantizer/detail/position_mask.h"
#include "fakequant/train/loop/detail/finite.h"

namespace fq::detail {
namespace {

/// Returns the number of the batch, and the sample that has NaN, for messages.
std::string batch_suffix(const Batch& batch, int number) {
  const std::string found = not_finite_sample(batch);
  return fmt::format(", in batch {}{}{}", number, found.empty() ? "" : ": ", found);
}

void run_batch(Module& model, const Batch& whole, const Tensor& x, int batch) {
  try {
    (void)model(Variable(x)).tensor();
  } catch (const NumericError& error) {
    throw NumericError(error.what() + batch_suffix(whole, batch));
  } catch (const ArgumentError& error) {
    throw ArgumentError(error.what() + batch_suffix(whole, batch));
  }
}

/// Returns the mask of the first `count` samples of a batch.
std::optional<PositionMask> batch_mask(const BatchMask& mask, const Batch& batch, std::int64_t count) {
  if (!mask) return std::nullopt;
  const Tensor all = mask(batch);
  FQ_CHECK(all.rank() == 2 && all.dim(0) >= count, "calibrate",
           "mask is {} for a batch of {}: use a number for each position of each sample", all.describe(),
           batch.x.describe());
  return PositionMask(all.slice(0, count));
}

Shape sample_shape(const Tensor& x) { return {x.shape().begin() + 1, x.shape().end()}; }

}  // namespace

ObserverScope::ObserverScope(Module& model) : model_(model), mode_(model) {
  visit_quantizers(model, [&](const NamedQuantizer& entry) {
    auto& q = *entry.quantizer;
    before_.push_back({&q, q.observing(), q.quantizing()});
    // Calibration observes the float values, not the errors of quantizers before.
    q.set_quantizing(false);
    q.set_observing(false);
  });
}

ObserverScope::~ObserverScope() {
  for (const auto& [q, observing, quantizing] : before_) {
    q->observer().set_watcher({});
    q->set_observing(observing);
    q->set_quantizing(quantizing);
  }
}

void ObserverScope::observe(TensorQuantizer& quantizer, Show show) {
  quantizer.set_observing(true);
  quantizer.observer().set_watcher(
      [&seen = seen_[&quantizer], show = std::move(show), &quantizer](const Variable& x) {
        // Weak pointers: an address could be reused by a later tensor of the batch.
        const auto same = [&](const auto& other) { return other.lock() == x.node(); };
        if (std::ranges::any_of(seen, same)) return;
        try {
          show(x.tensor());
        } catch (const ArgumentError& error) {
          throw ArgumentError(fmt::format("{}, at '{}'", error.what(), quantizer.name()));
        }
        seen.push_back(x.node());
      });
}

std::int64_t ObserverScope::run(DataLoader& data, std::int64_t limit, const BatchMask& mask) {
  const NoGrad no_grad;
  std::int64_t count = 0;
  Shape sample;
  data.start_epoch(0);
  for (int batch = 0; auto next = data.next(); ++batch) {
    // A batch of another rank counts, so that all ranks stop at the same sample.
    if (next->passed_over > 0) {
      count += next->passed_over;
      if (limit > 0 && count >= limit) break;
      continue;
    }
    Tensor x = next->x;
    if (sample.empty()) sample = sample_shape(x);
    FQ_CHECK(sample_shape(x) == sample, "calibrate",
             "samples of batch {} are {}, those before {}: use one shape", batch, to_string(sample_shape(x)),
             to_string(sample));
    if (limit > 0 && count + x.dim(0) > limit) x = x.slice(0, limit - count);
    for (auto& [quantizer, seen] : seen_) seen.clear();
    const auto padding = batch_mask(mask, *next, x.dim(0));
    // Observers below read the mask from the thread's context: modules do not pass it on.
    const ScopedValue<const PositionMask*> scope(context().position_mask, padding ? &*padding : nullptr);
    run_batch(model_, *next, x.to(model_.device()), batch);
    if (padding) masked_ += padding->matches();
    count += x.dim(0);
    if (limit > 0 && count >= limit) break;
  }
  // Leaves the loader at the start, so that a second call sees the same samples.
  data.start_epoch(0);
  return count;
}

}  // namespace fq::detail
