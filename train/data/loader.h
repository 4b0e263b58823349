#pragma once

/// DataLoader: batches of consecutive epochs, made in advance on a thread.
///
///     DataLoader loader(data, {.batch_size = 64, .seed = 1, .augment = {.shift = 2, .hflip = 0.5}});
///     while (const auto batch = loader.next()) use(batch->x, batch->y);  // one epoch

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/tensor.h"
#include "fakequant/train/data/augment.h"
#include "fakequant/train/data/dataset.h"

namespace fq {

/// Batch size, order and augmentation.
struct LoaderOptions {
  std::int64_t batch_size = 64;  ///< samples per batch, at least 1
  bool shuffle = true;           ///< new order every epoch; false keeps the order of the data set
  bool drop_last = false;        ///< drops the last batch of an epoch if it is smaller
  std::uint64_t seed = 0;        ///< seed of order and augmentation
  std::int64_t prefetch = 2;     ///< batches made in advance on a thread; 0 makes them in next()
  AugmentOptions augment = {};   ///< augmentation of training samples
  /// Whether integer labels are numbers, not classes. Mixing averages numbers, and mixes classes as shares.
  bool number_labels = false;
  /// Relative frequency of each class, in any unit. An epoch has the size of the data set, divided among the
  /// classes in these proportions (to one sample). If a class has fewer samples than draws, its samples
  /// repeat equally often, up to one. If it has more, some samples are skipped, others in each epoch. Empty:
  /// every sample once. Requires `shuffle`.
  std::vector<double> class_weights = {};
  bool balanced = false;  ///< class_weights of 1 for all classes with samples
  /// Share of a process that divides the batches of a step with others. An epoch is divided into turns of
  /// `turn` batches. This loader makes the batches whose position in the turn is `part` modulo `parts`. Of
  /// other batches it reads nothing and returns the number of samples (Batch::passed_over).
  std::int64_t part = 0, parts = 1, turn = 1;
  Device device = {};  ///< device of the batches; the prefetch thread copies them
};

/// Batches are a function of (data set, options without `prefetch`, epoch). Threads and timing do not change
/// a bit. The random changes of a sample depend on its index or, with class weights, on its position in the
/// epoch. For use by one thread at a time.
class DataLoader {
 public:
  /// Throws ArgumentError for options out of range, augmentation that the samples or labels do not support,
  /// changes of colour if the first samples are not between black and white, class weights without class
  /// labels, and fewer samples than a batch with `shuffle` or `drop_last`.
  DataLoader(std::shared_ptr<const Dataset> data, LoaderOptions options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;  // owns a thread
  DataLoader& operator=(const DataLoader&) = delete;

  /// Returns the next batch; nullopt once at the end of an epoch, before the next epoch begins. Throws the
  /// errors of reading the data. The loader then stays before that batch.
  [[nodiscard]] std::optional<Batch> next();

  [[nodiscard]] const Dataset& data() const noexcept;
  [[nodiscard]] const LoaderOptions& options() const noexcept;
  [[nodiscard]] std::int64_t batches_per_epoch() const noexcept;
  /// Returns the epoch of the next batch, from 0.
  [[nodiscard]] std::int64_t epoch() const noexcept;
  /// Returns the number of samples of this epoch that `next` has returned.
  [[nodiscard]] std::int64_t position() const noexcept;
  /// Moves to the start of an epoch. Throws ArgumentError if it is negative.
  void start_epoch(std::int64_t epoch);

  /// Returns the attributes `epoch`, `position`, `seed`, `size` and `batch_size`. Prefetched batches do not
  /// count.
  [[nodiscard]] StateDict state_dict() const;
  /// Continues at a saved state with its seed: the same batches follow. Throws ArgumentError for a state of
  /// another data size or batch size, or not of a loader. Nothing changes then.
  void load_state_dict(const StateDict& state);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq
