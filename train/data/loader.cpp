#include "fakequant/train/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/detail/augment/operations.h"
#include "fakequant/train/data/detail/class_draws.h"
#include "fakequant/train/data/detail/order.h"
#include "fakequant/train/detail/whole_number.h"

namespace fq::detail {
namespace {

struct Place {
  std::int64_t epoch = 0;
  std::int64_t position = 0;  ///< samples of the epoch before it
};

/// Makes the batch at a given position. For use by one thread.
class BatchSource {
 public:
  BatchSource(std::shared_ptr<const Dataset> data, const LoaderOptions& options);

  /// Returns the number of samples per epoch after `drop_last`.
  [[nodiscard]] std::int64_t samples_per_epoch() const noexcept;
  /// Returns the batch at `place`, or nullopt at the end of the epoch. Moves `place` to the next batch unless
  /// it throws.
  [[nodiscard]] std::optional<Batch> make(Place& place);

 private:
  void change(Batch& batch, const std::vector<std::int64_t>& samples, const Place& place) const;

  std::shared_ptr<const Dataset> data_;
  LoaderOptions options_;
  std::optional<ClassDraws> draws_;
  std::optional<EpochOrder> order_;
};

/// Makes batches from `start` on a thread, at most `depth` batches in advance. The thread ends with the
/// object, or after an exception.
class Prefetcher {
 public:
  Prefetcher(BatchSource source, Place start, std::int64_t depth);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;  // owns the thread
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Returns the next result of BatchSource::make. Do not call it after an exception. The first call waits
  /// until all prefetched batches exist, so that later batches reuse their memory.
  [[nodiscard]] std::optional<Batch> next(Place& place);

 private:
  struct Item {
    std::optional<Batch> batch;
    Place after;
    std::exception_ptr error;
  };

  void work();
  Item make_item();
  bool put(Item item);
  void wait_until_full(std::unique_lock<std::mutex>& lock);

  BatchSource source_;
  Place place_;
  std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Item> ready_;
  bool stop_ = false, blocked_ = false, ended_ = false, first_ = true;
  std::thread thread_;
};

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

}  // namespace
}  // namespace fq::detail

namespace fq {
namespace {

// A few samples are enough to find a data set with wrong black and white; all samples would cost an epoch.
constexpr std::int64_t kCheckedSamples = 16;
constexpr float kSlack = 0.01f;  // share of white minus black, for rounding errors of the pixels

/// Checks that the first samples are between black and white if a change of colour requires it.
void check_pixels(const Dataset& data, const AugmentOptions& options) {
  const auto needs = std::ranges::find_if(
      detail::operations(), [&](const auto& operation) { return operation.pixels && operation.on(options); });
  if (needs == detail::operations().end()) return;
  std::vector<std::int64_t> first(
      static_cast<std::size_t>(std::min<std::int64_t>(data.size(), kCheckedSamples)));
  std::iota(first.begin(), first.end(), std::int64_t{0});
  const auto values = data.read(first).x.to_vector<float>();
  const auto black = data.background(), white = data.white();
  const std::size_t inner = values.size() / first.size() / black.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t c = i / inner % black.size();
    const auto [low, high] = std::minmax(black[c], white[c]);
    // Normalised values have rounding errors.
    const float slack = kSlack * (high - low);
    FQ_CHECK(low - slack <= values[i] && values[i] <= high + slack, "augment",
             "{} changes pixels from black, {}, to white, {}, and sample {} has {}: define black and "
             "white by scale, mean and std of x (docs/formats.md), or leave {} out",
             needs->change.numbers.front().name, black[c], white[c], i / inner / black.size(), values[i],
             needs->change.numbers.front().name);
  }
}

void check_labels(const Dataset& data, const LoaderOptions& options) {
  if (!options.augment.mixes()) return;
  const Tensor labels = data.labels();
  FQ_CHECK(data.classes() > 0 || labels.defined(), "augment",
           "mixing needs labels, and the data has none: leave mixup and cutmix out");
  FQ_CHECK(!labels.defined() || labels.rank() <= 2, "augment",
           "mixing needs labels of samples, but the data has labels {} of positions: leave mixup and "
           "cutmix out",
           to_string(labels.shape()));
}

void check_augment(const Dataset& data, const LoaderOptions& options) {
  check(options.augment, data.sample_shape(), data.token_ids());
  check_labels(data, options);
  check_pixels(data, options.augment);
}

void check_options(const Dataset& data, const LoaderOptions& options) {
  FQ_CHECK(options.batch_size >= 1, "data_loader", "the batch size is {}: use at least 1",
           options.batch_size);
  FQ_CHECK(0 <= options.prefetch && options.prefetch <= 1024, "data_loader", "prefetch is {}: use 0 to 1024",
           options.prefetch);
  FQ_CHECK(data.size() >= options.batch_size || !(options.shuffle || options.drop_last), "data_loader",
           "the data has {} images, a batch {}: use a batch size of at most {}", data.size(),
           options.batch_size, data.size());
  FQ_CHECK(options.parts >= 1, "data_loader", "there are {} parts: use at least 1", options.parts);
  // A turn gives each part at least one batch.
  FQ_CHECK(options.turn >= options.parts && options.part >= 0 && options.part < options.parts, "data_loader",
           "part {} of {} in turns of {} batches: use a part from 0 to {}, and no more parts than a turn has "
           "batches",
           options.part, options.parts, options.turn, options.parts - 1);
  check_augment(data, options);
  FQ_CHECK((options.class_weights.empty() && !options.balanced) || options.shuffle, "data_loader",
           "weights of classes need shuffle: the order of the data set has every sample once");
  // Throws for weights that do not fit the classes, before the first batch.
  (void)detail::class_draws(data, options);
}

}  // namespace

struct DataLoader::Body {
  std::shared_ptr<const Dataset> data;
  LoaderOptions options;
  detail::Place place;
  std::optional<detail::BatchSource> source;  // used without a thread
  std::optional<detail::Prefetcher> ahead;

  Body(std::shared_ptr<const Dataset> dataset, const LoaderOptions& chosen)
      : data(std::move(dataset)), options(chosen) {
    FQ_CHECK(data != nullptr, "data_loader", "the data set is null");
    check_options(*data, options);
  }

  void seek(detail::Place next) {
    ahead.reset();
    source.reset();
    place = next;
  }

  std::optional<Batch> next() {
    if (options.prefetch == 0) {
      // Created on first use: a loader that only counts batches reads nothing.
      if (!source) source.emplace(data, options);
      return source->make(place);
    }
    if (!ahead) ahead.emplace(detail::BatchSource(data, options), place, options.prefetch);
    try {
      return ahead->next(place);
    } catch (...) {
      ahead.reset();
      // The thread has ended with its exception. The next call starts a new one at the same place.
      throw;
    }
  }
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> data, LoaderOptions options)
    : body_(std::make_unique<Body>(std::move(data), options)) {}
DataLoader::~DataLoader() = default;

std::optional<Batch> DataLoader::next() { return body_->next(); }
const Dataset& DataLoader::data() const noexcept { return *body_->data; }
const LoaderOptions& DataLoader::options() const noexcept { return body_->options; }
std::int64_t DataLoader::epoch() const noexcept { return body_->place.epoch; }
std::int64_t DataLoader::position() const noexcept { return body_->place.position; }

std::int64_t DataLoader::batches_per_epoch() const noexcept {
  const std::int64_t size = data().size(), batch = options().batch_size;
  return options().drop_last ? size / batch : (size - 1) / batch + 1;
}

void DataLoader::start_epoch(std::int64_t epoch) {
  FQ_CHECK(epoch >= 0, "data_loader", "the epoch is {}: they count from 0", epoch);
  // A seek discards prefetched batches, so that it is skipped where the loader is there already.
  if (this->epoch() != epoch || position() != 0) body_->seek({epoch, 0});
}

StateDict DataLoader::state_dict() const {
  StateDict state;
  state.set_attribute("epoch", epoch());
  state.set_attribute("position", position());
  state.set_attribute("seed", options().seed);
  state.set_attribute("size", data().size());
  state.set_attribute("batch_size", options().batch_size);
  return state;
}

void DataLoader::load_state_dict(const StateDict& state) {
  // Everything is read and checked before the loader changes.
  const auto count = [&](const char* name) { return detail::whole_number(state, name, "data_loader"); };
  const detail::Place place{count("epoch"), count("position")};
  const std::uint64_t seed = detail::seed_number(state, "data_loader");
  const std::int64_t size = count("size"), batch = count("batch_size");
  FQ_CHECK(size == data().size(), "data_loader",
           "the state is of {} samples, the data has {}: use the same data", size, data().size());
  FQ_CHECK(batch == options().batch_size, "data_loader",
           "the state is of batches of {}, not {}: use the same size", batch, options().batch_size);
  FQ_CHECK(place.position <= size, "data_loader", "the state is at position {} of {}: it is damaged",
           place.position, size);
  body_->options.seed = seed;
  body_->seek(place);
}

}  // namespace fq
