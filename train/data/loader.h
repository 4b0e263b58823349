#pragma once

/// DataLoader: the batches of one epoch after another, made ahead on a thread.
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

/// How batches are made of samples.
struct LoaderOptions {
  std::int64_t batch_size = 64;  ///< samples of a batch, at least 1
  bool shuffle = true;           ///< another order every epoch; false keeps that of the data set
  bool drop_last = false;        ///< leaves out the last batch of an epoch when it is smaller
  std::uint64_t seed = 0;        ///< of order and augmentation
  std::int64_t prefetch = 2;     ///< batches made ahead on a thread; 0 makes them in next()
  AugmentOptions augment = {};   ///< of training samples
  /// Labels that are integers are numbers all the same: mixing averages them, and makes no shares of classes.
  bool number_labels = false;
  /// How often samples of each class are drawn, one number a class, in any unit: an epoch has as many samples
  /// as the data, divided among the classes in these proportions (to one sample). Of a class that is drawn
  /// more often than it has samples each comes as often as another, up to one time; of others some are left
  /// out, others each epoch. Empty: every sample once. Needs `shuffle`.
  std::vector<double> class_weights = {};
  bool balanced = false;  ///< class_weights of 1 for all classes that have samples
  /// Of every `turn` batches of an epoch, which begins a turn, this loader makes those whose place in the
  /// turn is `part` modulo `parts`: for processes that share out the batches of a step. Of the others it
  /// reads nothing, and gives their number of samples (Batch::passed_over).
  std::int64_t part = 0, parts = 1, turn = 1;
  Device device = {};  ///< where batches are put, on the thread that makes them
};

/// The batches are a function of (data set, options without `prefetch`, epoch): neither threads nor timing
/// change a bit. What a sample draws is told by its index or, with weights of classes, where a sample comes
/// several times, by its place in the epoch. For use by one thread at a time.
class DataLoader {
 public:
  /// Throws ArgumentError for options out of range, augmentation that samples or labels of the data do not
  /// have, changes of colour where the first samples are not within black and white, weights of classes
  /// without labels of classes, and fewer samples than a batch when shuffling or dropping the last batch.
  DataLoader(std::shared_ptr<const Dataset> data, LoaderOptions options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;  // owns a thread
  DataLoader& operator=(const DataLoader&) = delete;

  /// The next batch; nullopt once at the end of an epoch, after which the next epoch begins.
  /// Throws what reading the data throws; the loader then stands before that batch.
  [[nodiscard]] std::optional<Batch> next();

  [[nodiscard]] const Dataset& data() const noexcept;
  [[nodiscard]] const LoaderOptions& options() const noexcept;
  [[nodiscard]] std::int64_t batches_per_epoch() const noexcept;
  /// The epoch of the next batch, from 0.
  [[nodiscard]] std::int64_t epoch() const noexcept;
  /// Samples of this epoch that were handed out.
  [[nodiscard]] std::int64_t position() const noexcept;
  /// Goes to the beginning of an epoch. Throws ArgumentError when it is negative.
  void start_epoch(std::int64_t epoch);

  /// Attributes `epoch`, `position`, `seed`, `size`, `batch_size`: what next() gives does not count batches
  /// made ahead.
  [[nodiscard]] StateDict state_dict() const;
  /// Goes on where the state was taken, with its seed: the same batches follow. Throws ArgumentError when the
  /// state is of a data set of another size, of another batch size, or not of a loader; then nothing changed.
  void load_state_dict(const StateDict& state);

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq
