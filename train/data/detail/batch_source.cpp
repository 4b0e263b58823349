#include "fakequant/train/data/detail/batch_source.h"

#include <algorithm>
#include <numeric>
#include <system_error>

#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/detail/check.h"

namespace fq::detail {

BatchSource::BatchSource(std::shared_ptr<const Dataset> data, const LoaderOptions& options)
    : data_(std::move(data)), options_(options), draws_(class_draws(*data_, options)) {}

std::int64_t BatchSource::samples_per_epoch() const noexcept {
  return options_.drop_last ? data_->size() / options_.batch_size * options_.batch_size : data_->size();
}

void BatchSource::change(Batch& batch, const std::vector<std::int64_t>& samples, const Place& place) const {
  // Random changes of a sample depend on its key, not on the batch or the rank. With class draws a sample can
  // occur twice: its position in the epoch distinguishes the copies.
  std::vector<std::int64_t> keys = samples;
  if (draws_) std::iota(keys.begin(), keys.end(), place.position);
  augment(batch.x, keys, options_.augment, options_.seed, place.epoch, data_->background(), data_->white());
  mix(batch, keys, options_.augment, options_.seed, place.epoch,
      options_.number_labels ? 0 : data_->classes());
}

std::optional<Batch> BatchSource::make(Place& place) {
  const std::int64_t end = std::min(place.position + options_.batch_size, samples_per_epoch());
  if (end <= place.position) {
    place = {place.epoch + 1, 0};
    return std::nullopt;
  }
  // A turn of batches is divided among `parts` ranks: batch i of a turn belongs to part i % parts. Other
  // ranks' batches are only counted, so that all ranks stay at the same place.
  const std::int64_t in_turn = place.position / options_.batch_size % options_.turn;
  if (in_turn % options_.parts != options_.part) {
    Batch other;
    other.passed_over = end - place.position;
    place.position = end;
    return other;
  }
  if (!order_ || order_->epoch() != place.epoch)
    order_.emplace(*data_, options_.shuffle, options_.seed, place.epoch,
                   draws_ ? draws_->epoch_samples(options_.seed, place.epoch) : std::vector<std::int64_t>());
  // `place` moves at the end, so that a batch whose read throws can be read again.
  const auto samples = order_->samples(place.position, end);
  auto batch = data_->read(samples);
  const bool changes = options_.augment.any();
  if (changes) change(batch, samples, place);
  place.position = end;
  return Batch{upload(batch.x, options_.device), upload(batch.y, options_.device),
               // Changed samples have no rows: the teacher's cached outputs are of unchanged samples.
               changes ? std::vector<std::int64_t>() : samples, 0};
}

Prefetcher::Prefetcher(BatchSource source, Place start, std::int64_t depth)
    : source_(std::move(source)), place_(start), depth_(static_cast<std::size_t>(depth)) {
  ready_.reserve(depth_);  // the thread needs no memory to hand over a batch
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    throw SystemError(fmt::format("[data_loader] no thread to prefetch on: {}", error.what()));
  }
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Prefetcher::Item Prefetcher::make_item() {
  Item item;
  try {
    item.batch = source_.make(place_);
  } catch (...) {
    item.error = std::current_exception();
  }
  item.after = place_;
  return item;
}

// Returns false if the thread has to end: after a stop request, or after an error, which is the last item.
bool Prefetcher::put(Item item) {
  std::unique_lock lock(mutex_);
  // Set if the queue is full and one more batch is ready: the thread then allocates no further memory.
  blocked_ = ready_.size() >= depth_;
  if (blocked_) changed_.notify_all();
  changed_.wait(lock, [&] { return stop_ || ready_.size() < depth_; });
  blocked_ = false;
  if (stop_) return false;
  const bool last = item.error != nullptr;
  ended_ = last;
  ready_.push_back(std::move(item));
  lock.unlock();
  changed_.notify_all();
  return !last;
}

void Prefetcher::work() {
  while (put(make_item())) {
  }
}

void Prefetcher::wait_until_full(std::unique_lock<std::mutex>& lock) {
  // All buffers of the steady state exist after this wait; see the declaration of `next`.
  first_ = false;
  changed_.notify_all();
  changed_.wait(lock, [&] { return (blocked_ && ready_.size() >= depth_) || ended_; });
}

std::optional<Batch> Prefetcher::next(Place& place) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty(); });
  Item item = std::move(ready_.front());
  ready_.erase(ready_.begin());
  if (first_) wait_until_full(lock);
  lock.unlock();
  changed_.notify_all();
  if (item.error) std::rethrow_exception(item.error);
  place = item.after;
  return std::move(item.batch);
}

}  // namespace fq::detail
