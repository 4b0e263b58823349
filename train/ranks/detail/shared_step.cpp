#include "fakequant/train/ranks/detail/shared_step.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/ranks/detail/gradient_sums.h"

namespace fq::detail {
namespace {

/// Returns a + factor * b, or factor * b if `a` is undefined.
Tensor scaled_sum(const Tensor& a, const Tensor& b, float factor) {
  Tensor out = Tensor::empty(b.shape());
  auto* values = out.mutable_data<float>();
  const float* added = b.data<float>();
  const float* base = a.defined() ? a.data<float>() : nullptr;
  for (std::int64_t i = 0; i < out.numel(); ++i)
    values[i] = (base != nullptr ? base[i] : 0.0f) + factor * added[i];
  return out;
}

std::string error_message(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

}  // namespace

SharedStep::SharedStep(std::shared_ptr<Communicator> ranks, Module& model, bool running,
                       fq::Reduction reduction)
    : ranks_(std::move(ranks)),
      model_(model),
      parameters_(model.parameters()),
      buckets_(ranks_, parameters_, reduction) {
  const auto of_weights = weight_quantizers(model);
  for (const auto& entry : named_quantizers(model)) {
    quantizers_.push_back(entry.quantizer);
    if (running && !of_weights.contains(entry.quantizer)) running_.push_back(entry.quantizer);
  }
}

void SharedStep::begin_step() {
  // Called by the first batch, and by `finish` on ranks without a batch: all ranks need the start values.
  if (std::exchange(begun_, true)) return;
  std::ranges::copy_if(quantizers_, std::back_inserter(growing_),
                       [](const auto* q) { return q->range().grows(); });
  for (const auto* q : growing_) at_start_.push_back(q->range().growth());
  grown_ = at_start_;
  // Copies, because batches write buffers and ranges in place.
  for (const auto& tensor : moving()) start_.push_back(tensor.to(Device::cpu()).clone());
}

/// Keeps the ranges that a batch has raised. The next batch begins with the ranges of the step.
void SharedStep::take_growth() {
  for (std::size_t i = 0; i < growing_.size(); ++i) {
    const RangeGrowth batch = growing_[i]->range().growth();
    for (std::size_t k = 0; k < batch.amax.size(); ++k) {
      grown_[i].amax[k] = std::max(grown_[i].amax[k], batch.amax[k]);
      // A range that one batch has fixed stays fixed.
      grown_[i].growing[k] = std::min(grown_[i].growing[k], batch.growing[k]);
    }
    growing_[i]->set_growth(at_start_[i]);
  }
}

/// Sets the largest ranges of all ranks. Floats that are not negative have the order of their bits.
void SharedStep::grow() {
  if (growing_.empty()) return;
  std::vector<std::int64_t> bits;
  for (const auto& [amax, growing] : grown_)
    for (std::size_t k = 0; k < amax.size(); ++k) {
      bits.push_back(std::bit_cast<std::int32_t>(amax[k]));
      // Inverted: the maximum over ranks then means "fixed on any rank".
      bits.push_back(growing[k] == 0 ? 1 : 0);
    }
  ranks_->max(bits);
  auto next = bits.begin();
  for (auto& [amax, growing] : grown_)
    for (std::size_t k = 0; k < amax.size(); ++k) {
      amax[k] = std::bit_cast<float>(static_cast<std::int32_t>(*next++));
      growing[k] = *next++ != 0 ? 0.0f : 1.0f;
    }
  for (std::size_t i = 0; i < growing_.size(); ++i) growing_[i]->set_growth(grown_[i]);
}

std::vector<Tensor> SharedStep::moving() const {
  std::vector<Tensor> out;
  for (const auto& [name, buffer] : model_.named_buffers())
    if (buffer.dtype() == DType::f32) out.push_back(buffer);
  for (auto* quantizer : running_) {
    const bool grows = std::ranges::find(growing_, quantizer) != growing_.end();
    if (const Tensor amax = quantizer->range().amax(); amax.defined() && !grows) out.push_back(amax);
  }
  return out;
}

bool SharedStep::is_last_batch(std::int64_t batches) const {
  return static_cast<std::int64_t>(batches_.size()) + ranks_->size() >= batches;
}

void SharedStep::begin_batch(std::int64_t batches) {
  last_ = is_last_batch(batches);
  if (last_) buckets_.begin(terms_, batches);
  begin_step();
  // The first batch starts with the values of the step already.
  if (terms_.empty()) return;
  auto now = moving();
  for (std::size_t i = 0; i < now.size(); ++i) now[i].copy_from(start_[i]);
}

void SharedStep::ready(const Gradient& leaf) {
  if (last_) buckets_.ready(leaf);
}

void SharedStep::end_batch(const BatchResult& result) {
  auto& term = terms_.emplace_back();
  for (auto& parameter : parameters_) {
    // Each batch has its own gradients: exact sums need all terms, not their float sum.
    term.push_back(parameter.grad());
    parameter.zero_grad();
  }
  if (last_) again_ = !buckets_.end(term);
  // Changes since the start of the step, as f32 on the host: `move` sums them exactly over all batches.
  const auto now = moving();
  const auto samples = static_cast<float>(result.samples);
  auto& moves = moves_.emplace_back();
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Tensor moved = scaled_sum(now[i].to(Device::cpu()), start_[i], -1);
    // Weighted by samples, because the last batch of an epoch can be smaller.
    moves.push_back(scaled_sum({}, moved, samples));
  }
  take_growth();
  batches_.emplace_back(result);
}

void SharedStep::fail(std::exception_ptr error) {
  if (!error_) error_ = std::move(error);
  batches_.emplace_back(std::nullopt);
}

void SharedStep::skip_batch() { batches_.emplace_back(std::nullopt); }

void SharedStep::forget() {
  terms_.clear();
  moves_.clear();
  batches_.clear();
  start_.clear();
  growing_.clear();
  at_start_.clear();
  grown_.clear();
  begun_ = false;
  again_ = false;
}

void SharedStep::throw_failure(bool& stop) {
  std::vector<std::int64_t> flags{error_ ? 1 : 0, stop ? 1 : 0, again_ ? 1 : 0};
  ranks_->max(flags);
  stop = flags[1] != 0;
  again_ = flags[2] != 0;
  if (flags[0] == 0) return;
  const auto own = std::exchange(error_, nullptr);
  forget();
  // Every rank learns of the error, also ranks whose batches were right: none may continue alone.
  const auto messages = ranks_->gather(own ? error_message(own) : std::string());
  if (own) std::rethrow_exception(own);
  const auto first = std::ranges::find_if(messages, [](const auto& text) { return !text.empty(); });
  throw NumericError(fmt::format("{} (on rank {})", *first, first - messages.begin()));
}

std::vector<SharedStep::BatchResult> SharedStep::all_results() {
  std::vector<std::int64_t> numbers;
  for (const auto& batch : batches_) {
    const BatchResult result = batch.value_or(BatchResult{});
    numbers.insert(numbers.end(), {std::bit_cast<std::int64_t>(result.loss), result.correct, result.samples});
  }
  // Only one rank has a batch; the others add zeros, so the integer sum keeps the bits of its loss.
  ranks_->sum(numbers);
  std::vector<BatchResult> out;
  for (std::size_t i = 0; i < numbers.size(); i += 3)
    out.push_back({std::bit_cast<double>(numbers[i]), numbers[i + 1], numbers[i + 2]});
  return out;
}

void SharedStep::move(const std::vector<BatchResult>& results) {
  std::int64_t samples = 0;
  for (const auto& batch : results) samples += batch.samples;
  auto now = moving();
  const auto moved = exact_sums(*ranks_, moves_, static_cast<std::int64_t>(results.size()), start_);
  for (std::size_t i = 0; i < now.size(); ++i)
    now[i].copy_from(scaled_sum(start_[i], moved[i], 1 / static_cast<float>(samples)));
}

std::vector<SharedStep::BatchResult> SharedStep::finish(bool& stop) {
  begin_step();
  const auto count = static_cast<std::int64_t>(batches_.size());
  // Ranks with an error sum, too, because all ranks must make the same calls.
  auto sums = buckets_.finish(terms_, count);
  throw_failure(stop);
  if (again_) sums = buckets_.finish(terms_, count);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].zero_grad();
    if (sums[i].defined()) parameters_[i].set_grad(sums[i].to(parameters_[i].device()));
  }
  const auto results = all_results();
  move(results);
  grow();
  forget();
  return results;
}

}  // namespace fq::detail
