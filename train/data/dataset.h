#pragma once

/// Dataset: samples by index, read in batches.
///
///     auto tensors = std::make_shared<TensorDataset>(images, labels);  // f32 [N, C, H, W], i64 [N]
///     auto [train, validation] = split_validation(tensors->size(), 0.1, 1);
///     auto held_out = std::make_shared<Subset>(tensors, validation);
///
/// Derive from Dataset for other kinds of data. Override `size`, `sample_shape`, `classes` and `read`.
/// DataLoader (train/data/loader.h) shuffles, augments and reads ahead.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

/// A batch of samples with their labels.
struct Batch {
  Tensor x;  ///< [N, ..sample shape], row-major: f32 network inputs, or i64 token ids
  /// i64 [N] class labels, or values for a custom loss, f32 or i64 [N, ..]. Undefined if the data has no
  /// labels.
  Tensor y;
  /// Indices of the samples in the loader's data set. Empty if augmentation changed the samples.
  std::vector<std::int64_t> rows = {};
  /// Number of samples of a batch that another process makes. x and y are then undefined.
  std::int64_t passed_over = 0;

  /// Returns the number of samples.
  [[nodiscard]] std::int64_t size() const { return passed_over > 0 ? passed_over : x.dim(0); }
  /// Returns the batch on `device`. Does not copy tensors that are already there.
  [[nodiscard]] Batch to(Device device) const { return {x.to(device), y.to(device), rows}; }
};

/// How a data set computes samples from stored values.
struct SampleNotes {
  std::vector<std::string> columns = {};          ///< column names of a table, one per value of a sample
  double scale = 0;                               ///< factor of stored values; 0 if unknown
  std::vector<double> mean = {}, deviation = {};  ///< (x * scale - mean) / deviation; one, or one per channel
};

/// Samples 0 .. size() - 1, all of one shape. Reading is thread-safe. A data set does not change. It is
/// shared by pointer, and loaders keep it alive.
class Dataset {
 public:
  Dataset() = default;
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;  // held by shared_ptr
  Dataset& operator=(const Dataset&) = delete;

  /// Returns the number of samples, at least 1.
  [[nodiscard]] virtual std::int64_t size() const noexcept = 0;
  /// Returns the shape of a sample, without N: [C, H, W], [features] or [tokens].
  [[nodiscard]] virtual const Shape& sample_shape() const noexcept = 0;
  /// Returns the number of classes: labels are 0 .. classes() - 1. Returns 0 without labels, or if
  /// labels are not one class per sample.
  [[nodiscard]] virtual std::int64_t classes() const noexcept = 0;
  /// Returns the names of the classes in label order, as UTF-8 text for users. Empty if the data has no
  /// names. The number of names can differ from `classes()`, which a caller may have set.
  [[nodiscard]] virtual const std::vector<std::string>& class_names() const noexcept;
  /// Returns how samples are computed. A network compares the notes with its training data to detect other
  /// data. Empty if unknown.
  [[nodiscard]] virtual const SampleNotes& sample_notes() const noexcept;
  /// Returns whether x is i64 token ids, not f32.
  [[nodiscard]] virtual bool token_ids() const noexcept { return false; }
  /// Returns the network's value of a stored zero, one per channel (axis 0 of the sample). Augmentation fills
  /// with it.
  [[nodiscard]] virtual std::vector<float> background() const;
  /// Returns the network's value of the brightest stored pixel, one per channel; 1 by default.
  [[nodiscard]] virtual std::vector<float> white() const;

  /// Reads the samples `rows` in this order to the CPU. Rows may repeat. Throws ArgumentError for an index
  /// out of range. Throws FileError with the row if a value cannot be read or is NaN or infinite.
  [[nodiscard]] virtual Batch read(std::span<const std::int64_t> rows) const = 0;

  /// Returns the labels of all samples, [size(), ..], if they are in memory. Undefined otherwise, and without
  /// labels.
  [[nodiscard]] virtual Tensor labels() const { return {}; }

  /// Returns a CRC-32C of the sizes, of all `labels`, and of samples from `read`. Reads all samples if x has
  /// at most 64 MiB, otherwise 64 evenly spaced samples. A resumed run uses it to check that the data is
  /// unchanged. Throws the errors of `read`.
  [[nodiscard]] virtual std::uint32_t fingerprint() const;

  /// Returns the first sample of each block that is cheap to read as a whole; the first is 0. Shuffling
  /// respects blocks.
  [[nodiscard]] virtual std::vector<std::int64_t> block_starts() const { return {0}; }
  /// Returns how many blocks can be read in turn without reading a block twice.
  [[nodiscard]] virtual std::int64_t blocks_at_once() const noexcept { return 1; }
};

/// A data set of two tensors in memory. x is f32 or i64 [N, ..]. y is i64 [N], undefined, or for a custom
/// loss f32 or i64 [N, ..]. Shares the storage of the tensors. Values are network inputs; nothing is scaled.
class TensorDataset : public Dataset {
 public:
  /// Throws ArgumentError for other dtypes, zero samples, different numbers of samples, and negative class
  /// labels.
  explicit TensorDataset(Tensor x, Tensor y = {});

  [[nodiscard]] std::int64_t size() const noexcept override { return x_.shape()[0]; }
  [[nodiscard]] const Shape& sample_shape() const noexcept override { return sample_shape_; }
  [[nodiscard]] std::int64_t classes() const noexcept override { return classes_; }
  [[nodiscard]] bool token_ids() const noexcept override { return x_.dtype() == DType::i64; }
  [[nodiscard]] Batch read(std::span<const std::int64_t> rows) const override;
  [[nodiscard]] Tensor labels() const override { return y_; }
  /// Returns the checksum of all samples, regardless of their number.
  [[nodiscard]] std::uint32_t fingerprint() const override;

 private:
  Tensor x_, y_;
  Shape sample_shape_;
  std::int64_t classes_ = 0;
};

/// Selected samples of another data set: sample i is `rows[i]` of `data`. Classes and blocks come from
/// `data`, which the subset keeps alive.
class Subset : public Dataset {
 public:
  /// Throws ArgumentError if `rows` is empty, not ascending or out of range.
  Subset(std::shared_ptr<const Dataset> data, std::vector<std::int64_t> rows);

  [[nodiscard]] std::int64_t size() const noexcept override {
    return static_cast<std::int64_t>(rows_.size());
  }
  [[nodiscard]] const Shape& sample_shape() const noexcept override { return data_->sample_shape(); }
  [[nodiscard]] std::int64_t classes() const noexcept override { return data_->classes(); }
  [[nodiscard]] const std::vector<std::string>& class_names() const noexcept override {
    return data_->class_names();
  }
  [[nodiscard]] const SampleNotes& sample_notes() const noexcept override { return data_->sample_notes(); }
  [[nodiscard]] bool token_ids() const noexcept override { return data_->token_ids(); }
  [[nodiscard]] std::vector<float> background() const override { return data_->background(); }
  [[nodiscard]] std::vector<float> white() const override { return data_->white(); }
  [[nodiscard]] Batch read(std::span<const std::int64_t> rows) const override;
  [[nodiscard]] Tensor labels() const override;
  /// Returns a checksum of the fingerprint of `data` and of `rows`.
  [[nodiscard]] std::uint32_t fingerprint() const override;
  [[nodiscard]] std::vector<std::int64_t> block_starts() const override;
  [[nodiscard]] std::int64_t blocks_at_once() const noexcept override { return data_->blocks_at_once(); }

 private:
  std::shared_ptr<const Dataset> data_;
  std::vector<std::int64_t> rows_;
};

/// Indices for training and for validation: two ascending lists that together contain 0 .. size - 1.
struct ValidationSplit {
  std::vector<std::int64_t> train, validation;
};

/// Puts round(fraction * size) samples into `validation`, at least one on each side, selected by `seed` only.
/// Throws ArgumentError unless 0 < fraction < 1 and size >= 2.
[[nodiscard]] ValidationSplit split_validation(std::int64_t size, double fraction, std::uint64_t seed);

}  // namespace fq
