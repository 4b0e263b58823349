#pragma once

/// Hdf5Dataset: data set files (docs/formats.md), read in blocks of rows. Files may be larger than memory.
///
///     auto training = std::make_shared<Hdf5Dataset>("data/digits.h5");
///     auto test = std::make_shared<Hdf5Dataset>("data/digits.h5", Hdf5DatasetOptions{.split = "test"});

#include <memory>
#include <string>

#include "fakequant/train/data/dataset.h"

namespace fq {

/// Allowed labels.
///
/// - `classes`: one class per sample, an integer from 0;
/// - `integers`: also integers of any shape, for example a class per pixel;
/// - `numbers`: also real numbers.
enum class LabelType { classes, integers, numbers };

/// Group of the file to read, and its requirements.
struct Hdf5DatasetOptions {
  std::string split = "train";                ///< group; empty for x and y at the root of the file
  bool labels = true;                         ///< whether y is required; if false, y is not read
  bool may_lack_labels = false;               ///< with `labels`: whether y may be missing
  LabelType label_type = LabelType::classes;  ///< allowed labels
  std::int64_t classes = 0;  ///< limit of labels; 0: the attribute `classes`, or else the largest label + 1
  std::int64_t cache_bytes = std::int64_t{256} << 20;  ///< cache for stored rows, in bytes
  /// Whether to read single rows (or pieces of 4 KiB, or a chunk of the file) instead of blocks. For one of
  /// several processes that share the rows. Does not change values or their order.
  bool by_rows = false;
  Shape sample_shape = {};   ///< required shape, checked before the labels; empty for any
  bool check_layout = true;  ///< whether certain [H, W, C] samples are an error; false warns
};

/// One group of a data set file. Other groups are not opened.
///
/// x [N, ..] of u8, i8, f16, f32 or f64 becomes f32: (x * scale - mean) / std, with the attributes of x
/// (scale defaults to 1; mean and std have one value, or one per channel). x [N, L] of wider integers is
/// token ids. y [N] or [N, 1] of integers is classes. With another `label_type`, integers [N, ..] become i64
/// and floats f32, of the stored shape, and `classes()` is 0. Labels stay in memory in their stored type.
/// Rows of x are read on demand and cached up to `cache_bytes`.
///
/// The attribute `classes` of the group, or else of the file, is the number of classes or their names:
/// strings, or one text with a JSON list, lines or commas. Other attributes are ignored.
///
/// Samples [H, W, C] are rejected if they are certain: H and W above 4, and H = W or 3 or 4 channels. They
/// are accepted if `sample_shape` requires this shape or if x has the attribute `axes` = "NCHW". A possible
/// [H, W, C], and x with values from 0 to 255 without scale, mean and std, log a warning (core/log.h).
class Hdf5Dataset : public Dataset {
 public:
  /// Throws FileError if the file is missing or not HDF5 (with its kind), if the group, x or y is missing
  /// (with the existing names), for unsupported types and shapes, zero samples, and different numbers of x
  /// and y. Also for labels out of range, NaN or infinity (with the row), and for invalid attributes.
  explicit Hdf5Dataset(std::string path, Hdf5DatasetOptions options = {});
  ~Hdf5Dataset() override;

  [[nodiscard]] std::int64_t size() const noexcept override;
  [[nodiscard]] const Shape& sample_shape() const noexcept override;
  [[nodiscard]] std::int64_t classes() const noexcept override;
  [[nodiscard]] const std::vector<std::string>& class_names() const noexcept override;
  /// Returns the attribute `columns` of the file, and scale, mean and std of x.
  [[nodiscard]] const SampleNotes& sample_notes() const noexcept override;
  [[nodiscard]] bool token_ids() const noexcept override;
  [[nodiscard]] std::vector<float> background() const override;
  /// Returns the network's value of a stored 1 / scale, for example 255 with a scale of 1 / 255. For u8
  /// data with a scale that is not 1 / n, returns the value of a stored 255.
  [[nodiscard]] std::vector<float> white() const override;
  [[nodiscard]] Batch read(std::span<const std::int64_t> rows) const override;
  /// Returns classes as i64, and other labels in their stored type.
  [[nodiscard]] Tensor labels() const override;
  /// Returns the number of classes that the group or the file states, even if labels are not classes; 0 if
  /// none.
  [[nodiscard]] std::int64_t stated_classes() const noexcept;
  [[nodiscard]] std::vector<std::int64_t> block_starts() const override;
  [[nodiscard]] std::int64_t blocks_at_once() const noexcept override;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq
