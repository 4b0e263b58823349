#pragma once

/// HDF5 files of data sets: their groups, columns and classes.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/io/detail/hdf5_reader.h"
#include "fakequant/train/data/hdf5_dataset.h"

namespace fq::detail {

constexpr std::int64_t kMostClasses = std::int64_t{1} << 24;

struct StatedClasses {
  std::int64_t count = 0;          ///< 0: not stated
  std::vector<std::string> names;  ///< `count` of them, or none
};

/// The names in one text: a JSON list of strings, or lines, or what commas divide, without blanks around.
/// None for JSON that is no such list.
[[nodiscard]] std::vector<std::string> split_names(std::string_view text);

/// The attribute `classes` of `group`, or else of the file: a count, a list of names or a text of either.
/// Logs a warning for another value and ignores it. Throws FileError for a count that cannot be
/// one.
[[nodiscard]] StatedClasses read_classes(const Hdf5Reader& file, const std::string& group);

/// What turns stored values into the network's: scale, then one mean and deviation a channel.
struct Normalisation {
  bool stated = false;  ///< by any of the attributes
  float scale = 1;
  std::vector<float> mean, deviation;

  [[nodiscard]] float apply(float value, std::size_t channel) const {
    return (value * scale - mean[channel]) / deviation[channel];
  }
};

/// Each question throws FileError, naming the dataset, for what is not as it has to be. `options` must
/// outlive it.
class DataFile {
 public:
  DataFile(const std::string& path, const Hdf5DatasetOptions& options);

  /// Rows of images, or of token ids (integers wider than a byte), of a type and shape that can be read.
  [[nodiscard]] Hdf5Rows open_x() const;
  /// Whether samples of that shape are those that are wanted, and look as they are read.
  void check_sample(const Shape& sample) const;
  /// What y is, of whatever task; nothing without one.
  struct LabelKind {
    DType dtype;
    Shape shape;

    /// Whether they are classes: integers, one a sample.
    [[nodiscard]] bool classes() const;
  };
  [[nodiscard]] std::optional<LabelKind> label_kind() const;
  /// i64 [count] of classes, others as they are stored; undefined when there is none and need not be.
  [[nodiscard]] Tensor read_y(std::int64_t count) const;
  [[nodiscard]] StatedClasses classes() const;
  /// The number of classes; `stated` is what the file says, 0 for nothing.
  [[nodiscard]] std::int64_t check_labels(const Tensor& y, std::int64_t stated) const;
  [[nodiscard]] Normalisation normalisation(std::int64_t channels) const;
  /// The attributes as they stand, not checked.
  [[nodiscard]] SampleNotes notes() const;
  /// Warns of values as they are stored that look like pixels, and that nothing scales.
  void doubt_range(const std::vector<std::byte>& values, DType dtype) const;
  /// Whether the attribute `axes` says that channels come first.
  [[nodiscard]] bool says_channels_first() const;
  /// The path of a part, "train/x".
  [[nodiscard]] std::string name(const std::string& part) const;

 private:
  [[noreturn]] void refuse(const std::string& part, const std::string& why) const;
  void check_label_type(const LabelKind& kind) const;
  void check_finite(const Tensor& y) const;
  void warn(const std::string& why) const;
  [[nodiscard]] Hdf5Rows open(const std::string& part) const;
  void check_axes(const Shape& sample) const;
  [[nodiscard]] std::vector<float> attribute(const std::string& key, std::int64_t count,
                                             float fallback) const;

  Hdf5Reader file_;
  const Hdf5DatasetOptions& options_;
};

/// The groups of a data set file that have an x: train, val and test first, the others by their names; "" for
/// one with x at its root. Throws FileError, naming what there is, where none has.
[[nodiscard]] std::vector<std::string> data_groups(const std::string& path);

}  // namespace fq::detail
