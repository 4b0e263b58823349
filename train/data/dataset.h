#pragma once

/// Data sets: samples by index, read in batches.
///
///     auto tensors = std::make_shared<TensorDataset>(images, labels);  // f32 [N, C, H, W], i64 [N]
///     auto [train, validation] = split_validation(tensors->size(), 0.1, 1);
///     auto held_out = std::make_shared<Subset>(tensors, validation);
///
/// Derive from Dataset for data of another kind: `size`, `sample_shape`, `classes` and `read` are needed.
/// DataLoader (train/data/loader.h) shuffles, augments and reads ahead.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

/// Samples side by side, with their labels.
struct Batch {
  Tensor x;  ///< [N, ..sample shape], row-major: f32 as the network sees it, or i64 token ids
  /// [N] i64 class labels, or what a loss of one's own takes, f32 or i64 [N, ..]; undefined when the data has
  /// none.
  Tensor y;
  /// Of a loader, which samples of its data these are; none where they were changed by augmentation.
  std::vector<std::int64_t> rows = {};
  /// Samples of a batch that another process makes; x and y are undefined then.
  std::int64_t passed_over = 0;

  /// The number of samples.
  [[nodiscard]] std::int64_t size() const { return passed_over > 0 ? passed_over : x.dim(0); }
  /// The same on another device; itself when it is there.
  [[nodiscard]] Batch to(Device device) const { return {x.to(device), y.to(device), rows}; }
};

/// What a data set tells of how its samples were made of what is stored.
struct SampleNotes {
  std::vector<std::string> columns = {};  ///< names of a sample's numbers, in their order; of tables
  double scale = 0;                       ///< what stored values are multiplied by; 0: nothing is said of it
  std::vector<double> mean = {}, deviation = {};  ///< taken off and divided by then: one, or one a channel
};

/// Samples 0 .. size() - 1, all of one shape. Reading is thread-safe; a data set does not change. It is
/// shared by pointer: loaders keep it alive.
class Dataset {
 public:
  Dataset() = default;
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;  // held by shared_ptr
  Dataset& operator=(const Dataset&) = delete;

  /// The number of samples, at least 1.
  [[nodiscard]] virtual std::int64_t size() const noexcept = 0;
  /// The shape of a sample, without N: [C, H, W], [features] or [tokens].
  [[nodiscard]] virtual const Shape& sample_shape() const noexcept = 0;
  /// Labels are 0 .. classes() - 1; 0 without labels, and where they are not one class for each sample.
  [[nodiscard]] virtual std::int64_t classes() const noexcept = 0;
  /// What the classes are called, in the order of their labels: UTF-8, for people. None where the data has no
  /// names; otherwise not always as many as `classes()`, which may be what somebody else asked for.
  [[nodiscard]] virtual const std::vector<std::string>& class_names() const noexcept;
  /// How samples were made, by which a network tells other data from that it was trained on; nothing where
  /// nobody says.
  [[nodiscard]] virtual const SampleNotes& sample_notes() const noexcept;
  /// Whether x is i64 token ids, not f32.
  [[nodiscard]] virtual bool token_ids() const noexcept { return false; }
  /// What a stored zero becomes, one value a channel (axis 0 of the sample); what augmentation fills with.
  [[nodiscard]] virtual std::vector<float> background() const;
  /// What the brightest stored pixel becomes, one value a channel: 1 where nobody says otherwise.
  [[nodiscard]] virtual std::vector<float> white() const;

  /// Reads the samples `rows`, in that order, to the CPU; repeats are allowed. Throws ArgumentError for an
  /// index out of range, FileError naming the row when a value cannot be read or is NaN or infinite.
  [[nodiscard]] virtual Batch read(std::span<const std::int64_t> rows) const = 0;

  /// The labels of all samples, [size(), ..], where they are in memory; undefined otherwise, and without
  /// labels.
  [[nodiscard]] virtual Tensor labels() const { return {}; }

  /// A CRC-32C of the sizes, of all `labels`, and of samples as `read` gives them: of all in data of up to 64
  /// MiB of x, else of 64 samples spread evenly. Tells whether a run goes on with the data that it began
  /// with. Throws as `read`.
  [[nodiscard]] virtual std::uint32_t fingerprint() const;

  /// Where runs of samples begin that are cheap to read together; the first is 0. Shuffling respects them.
  [[nodiscard]] virtual std::vector<std::int64_t> block_starts() const { return {0}; }
  /// How many such runs may be read in turn without reading one twice.
  [[nodiscard]] virtual std::int64_t blocks_at_once() const noexcept { return 1; }
};

/// Two tensors in memory: x is f32 or i64 [N, ..], y i64 [N] or undefined, or for a loss of one's own f32 [N,
/// ..] or i64 [N, ..]. It shares their storage. Values are as the network is to see them: nothing is scaled.
class TensorDataset : public Dataset {
 public:
  /// Throws ArgumentError for other dtypes, zero samples, counts that differ and, of classes, negative
  /// labels.
  explicit TensorDataset(Tensor x, Tensor y = {});

  [[nodiscard]] std::int64_t size() const noexcept override { return x_.shape()[0]; }
  [[nodiscard]] const Shape& sample_shape() const noexcept override { return sample_shape_; }
  [[nodiscard]] std::int64_t classes() const noexcept override { return classes_; }
  [[nodiscard]] bool token_ids() const noexcept override { return x_.dtype() == DType::i64; }
  [[nodiscard]] Batch read(std::span<const std::int64_t> rows) const override;
  [[nodiscard]] Tensor labels() const override { return y_; }
  /// The checksum of all samples, however many there are.
  [[nodiscard]] std::uint32_t fingerprint() const override;

 private:
  Tensor x_, y_;
  Shape sample_shape_;
  std::int64_t classes_ = 0;
};

/// Some samples of another data set: sample i is `rows[i]` of `data`. Classes and blocks are those of `data`,
/// which it keeps alive.
class Subset : public Dataset {
 public:
  /// Throws ArgumentError when `rows` is empty, not ascending or out of range.
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
  /// The checksum of that of `data` and of which of its samples these are.
  [[nodiscard]] std::uint32_t fingerprint() const override;
  [[nodiscard]] std::vector<std::int64_t> block_starts() const override;
  [[nodiscard]] std::int64_t blocks_at_once() const noexcept override { return data_->blocks_at_once(); }

 private:
  std::shared_ptr<const Dataset> data_;
  std::vector<std::int64_t> rows_;
};

/// Which samples are trained on and which are held out: two ascending lists that together are 0 .. size - 1.
struct ValidationSplit {
  std::vector<std::int64_t> train, validation;
};

/// Puts round(fraction * size) samples, but at least one on each side, into `validation`, chosen by `seed`
/// alone. Throws ArgumentError unless 0 < fraction < 1 and size >= 2.
[[nodiscard]] ValidationSplit split_validation(std::int64_t size, double fraction, std::uint64_t seed);

}  // namespace fq
