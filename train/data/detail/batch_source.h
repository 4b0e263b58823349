#pragma once

/// Batches by position, and the thread that makes them in advance.

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "fakequant/train/data/detail/class_draws.h"
#include "fakequant/train/data/detail/order.h"
#include "fakequant/train/data/loader.h"

namespace fq::detail {

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

}  // namespace fq::detail
