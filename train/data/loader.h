#pragma once

/// DataLoader: the batches of one epoch after another, made ahead on a thread, and the random changes of
/// training images that keep their meaning.
///
///     DataLoader loader(data, {.batch_size = 64, .seed = 1, .augment = {.shift = 2, .flip = true}});
///     while (const auto batch = loader.next()) use(batch->x, batch->y);  // one epoch

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/tensor.h"
#include "fakequant/train/data/dataset.h"

namespace fq {

/// How far each change may go; 0 leaves it out. Amounts are uniform in [-limit, limit].
struct AugmentOptions {
  double shift = 0;         ///< pixels, along each axis
  double rotation = 0;      ///< degrees, about the centre
  double scale = 0;         ///< fraction of the size: 0.1 gives 0.9 to 1.1; below 1
  double shear = 0;         ///< columns moved per row
  std::int64_t cutout = 0;  ///< side of one erased square, pixels; its centre is anywhere in the image
  bool flip = false;        ///< mirrors left and right every second image

  [[nodiscard]] bool any() const noexcept {
    return shift != 0 || rotation != 0 || scale != 0 || shear != 0 || cutout != 0 || flip;
  }
};

/// Throws ArgumentError for a negative or infinite limit and for a scale of 1 or more.
void check(const AugmentOptions& options);

/// Changes f32 [N, C, H, W] images in place: one affine warp with bilinear interpolation (flip, shear, scale,
/// rotation, shift, in that order), then the cutout. Image i changes by (seed, epoch, samples[i]) alone,
/// every channel alike. What was outside of the image becomes `background[c]`. Throws ArgumentError for other
/// shapes, dtypes and counts.
void augment(Tensor& images, std::span<const std::int64_t> samples, const AugmentOptions& options,
             std::uint64_t seed, std::int64_t epoch, const std::vector<float>& background);

/// How batches are made of samples.
struct LoaderOptions {
  std::int64_t batch_size = 64;  ///< samples of a batch, at least 1
  bool shuffle = true;           ///< another order every epoch; false keeps that of the data set
  bool drop_last = false;        ///< leaves out the last batch of an epoch when it is smaller
  std::uint64_t seed = 0;        ///< of order and augmentation
  std::int64_t prefetch = 2;     ///< batches made ahead on a thread; 0 makes them in next()
  AugmentOptions augment = {};   ///< of training images
  Device device = {};            ///< where batches are put, on the thread that makes them
};

/// The batches are a function of (data set, options without `prefetch`, epoch): neither threads nor timing
/// change a bit. For use by one thread at a time.
class DataLoader {
 public:
  /// Throws ArgumentError for options out of range, augmentation of data that is not [C, H, W], and fewer
  /// samples than a batch when shuffling or dropping the last batch.
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
