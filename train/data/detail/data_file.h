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
  std::int64_t count = 0;          ///< 0 if not stated
  std::vector<std::string> names;  ///< `count` names, or empty
};

/// Splits a text into names: a JSON list of strings, lines, or values separated by commas, without blanks
/// around them. Returns an empty list for any other JSON.
[[nodiscard]] std::vector<std::string> split_names(std::string_view text);

/// Reads the attribute `classes` of `group`, or else of the file: a count, a list of names, or a text of
/// either. Logs a warning for another value and ignores it. Throws FileError for an invalid count.
[[nodiscard]] StatedClasses read_classes(const Hdf5Reader& file, const std::string& group);

/// Scaling of stored values: first the scale, then one mean and deviation per channel.
struct Normalisation {
  bool stated = false;  ///< at least one attribute exists
  float scale = 1;
  std::vector<float> mean, deviation;

  [[nodiscard]] float apply(float value, std::size_t channel) const {
    return (value * scale - mean[channel]) / deviation[channel];
  }
};

/// Checked access to a data set file. Each function throws FileError with the dataset's name if the file is
/// invalid. `options` must outlive this object.
class DataFile {
 public:
  DataFile(const std::string& path, const Hdf5DatasetOptions& options);

  /// Returns the rows of images, or of token ids (integers wider than a byte), after checks of type and
  /// shape.
  [[nodiscard]] Hdf5Rows open_x() const;
  /// Checks samples against the requested shape and against the layout [C, H, W].
  void check_sample(const Shape& sample) const;
  /// Type and shape of y.
  struct LabelKind {
    DType dtype;
    Shape shape;

    /// Returns whether labels are classes: one integer per sample.
    [[nodiscard]] bool classes() const;
  };
  [[nodiscard]] std::optional<LabelKind> label_kind() const;
  /// Returns class labels as i64 [count], other labels as stored. Undefined if y is missing and optional.
  [[nodiscard]] Tensor read_y(std::int64_t count) const;
  [[nodiscard]] StatedClasses classes() const;
  /// Returns the number of classes. `stated` is the number in the file, 0 if it is not stated.
  [[nodiscard]] std::int64_t check_labels(const Tensor& y, std::int64_t stated) const;
  [[nodiscard]] Normalisation normalisation(std::int64_t channels) const;
  /// Returns the unchecked attributes.
  [[nodiscard]] SampleNotes notes() const;
  /// Warns if stored values look like pixels and no attribute scales them.
  void doubt_range(const std::vector<std::byte>& values, DType dtype) const;
  /// Returns whether the attribute `axes` states that channels come first.
  [[nodiscard]] bool says_channels_first() const;
  /// Returns the path of a part, for example "train/x".
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

/// Returns the groups of a data set file that have an x: train, val and test first, then the others by name;
/// "" for x at the root. Throws FileError with the existing names if no group has an x.
[[nodiscard]] std::vector<std::string> data_groups(const std::string& path);

}  // namespace fq::detail
