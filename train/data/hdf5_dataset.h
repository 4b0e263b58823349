#pragma once

/// Data set files (docs/formats.md), read a run of rows at a time: they may be larger than memory.
///
///     auto training = std::make_shared<Hdf5Dataset>("data/digits.h5");
///     auto test = std::make_shared<Hdf5Dataset>("data/digits.h5", Hdf5DatasetOptions{.split = "test"});

#include <memory>
#include <string>

#include "fakequant/train/data/dataset.h"

namespace fq {

/// What labels may be.
///
/// - `classes`: one class for each sample, an integer from 0;
/// - `integers`: integers of any shape too, such as a class for each pixel;
/// - `numbers`: real numbers too.
enum class LabelType { classes, integers, numbers };

/// Which part of a file is read, and what it must be.
struct Hdf5DatasetOptions {
  std::string split = "train";                ///< the group; empty for x and y at the root of the file
  bool labels = true;                         ///< whether y is needed; without, it is not read
  bool may_lack_labels = false;               ///< with `labels`: no y is no error, the data set then has none
  LabelType label_type = LabelType::classes;  ///< what y may be
  std::int64_t classes =
      0;  ///< labels must be below; 0: as the attribute `classes` says, or the largest label + 1
  std::int64_t cache_bytes = std::int64_t{256} << 20;  ///< of rows kept in memory, as the file stores them
  /// Whether rows are read by themselves (or in pieces of 4 KiB, or a chunk of the file) and not in blocks:
  /// for one of several processes that share them out. No value and no order depends on it.
  bool by_rows = false;
  Shape sample_shape = {};   ///< what samples must be, which is checked before labels are; empty: anything
  bool check_layout = true;  ///< whether samples that are surely [H, W, C] are an error, not a warning
};

/// One group of a data set file; no other group is opened.
///
/// x [N, ..] is u8, i8, f16, f32 or f64 and becomes f32: (x * scale - mean) / std, with the attributes of x
/// (scale defaults to 1; mean, std: one value, or one a channel); x [N, L] of wider integers is token ids. y
/// [N] or [N, 1] of integers is classes; by `label_type` other integers, [N, ..], become i64 and floats f32
/// of the shape that they have, and `classes()` is 0 then. Labels are kept in memory in the type that they
/// are stored in, rows of x are read when asked for and kept up to `cache_bytes`.
///
/// An attribute `classes` of the group, or else of the file, is how many there are, or their names: strings,
/// or one text of a JSON list, of lines or with commas. Other attributes are not looked at.
///
/// Samples [H, W, C], with 1, 3 or 4 at the end where channels come first, are refused where there is no
/// doubt (H = W, or 3 or 4 at the end, and more than 4 before), unless `sample_shape` asks for just that or x
/// has an attribute `axes` = "NCHW"; where there is some doubt, and for x of values from 0 to 255 without
/// scale, mean and std, a warning is logged (core/log.h).
class Hdf5Dataset : public Dataset {
 public:
  /// Throws FileError, in one line: no such file, not HDF5 (naming what it is), no such group, no x or y
  /// (naming what there is), other types, zero samples, other shapes, counts of x and y that differ, labels
  /// out of range, NaN or infinite (naming the row), attributes that do not fit.
  explicit Hdf5Dataset(std::string path, Hdf5DatasetOptions options = {});
  ~Hdf5Dataset() override;

  [[nodiscard]] std::int64_t size() const noexcept override;
  [[nodiscard]] const Shape& sample_shape() const noexcept override;
  [[nodiscard]] std::int64_t classes() const noexcept override;
  [[nodiscard]] const std::vector<std::string>& class_names() const noexcept override;
  /// The attributes `columns` of the file and scale, mean and std of x.
  [[nodiscard]] const SampleNotes& sample_notes() const noexcept override;
  [[nodiscard]] bool token_ids() const noexcept override;
  [[nodiscard]] std::vector<float> background() const override;
  /// Of stored 1 / scale, as 255 with a scale of 1 / 255; of u8 whose scale is no such fraction, of 255.
  [[nodiscard]] std::vector<float> white() const override;
  [[nodiscard]] Batch read(std::span<const std::int64_t> rows) const override;
  /// In the type that the file has them in, but classes, which are i64.
  [[nodiscard]] Tensor labels() const override;
  /// What the group or the file says of classes, where labels are none of `classes()`; 0 for nothing.
  [[nodiscard]] std::int64_t stated_classes() const noexcept;
  [[nodiscard]] std::vector<std::int64_t> block_starts() const override;
  [[nodiscard]] std::int64_t blocks_at_once() const noexcept override;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq
