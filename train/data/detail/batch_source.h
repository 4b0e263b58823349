#pragma once

/// Batches by place, and the thread that makes them ahead.

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
  std::int64_t position = 0;  ///< samples before it
};

/// Makes the batch at a place. For one thread.
class BatchSource {
 public:
  BatchSource(std::shared_ptr<const Dataset> data, const LoaderOptions& options);

  /// Samples of an epoch that are handed out.
  [[nodiscard]] std::int64_t samples_per_epoch() const noexcept;
  /// nullopt at the end of the epoch. `place` becomes that of what comes next, unless something is thrown.
  [[nodiscard]] std::optional<Batch> make(Place& place);

 private:
  void change(Batch& batch, const std::vector<std::int64_t>& samples, const Place& place) const;

  std::shared_ptr<const Dataset> data_;
  LoaderOptions options_;
  std::optional<ClassDraws> draws_;
  std::optional<EpochOrder> order_;
};

/// Makes what comes from `start` on, at most `depth` batches ahead. Ends with the object, or with an
/// exception.
class Prefetcher {
 public:
  Prefetcher(BatchSource source, Place start, std::int64_t depth);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;  // owns the thread
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// As BatchSource::make, in the order of places. After a throw there is nothing more. The first call waits
  /// until as many batches are made as there will ever be at once: none needs memory of its own later.
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
