#pragma once

/// Histogram of a calibrator, for reports with any method.

#include <cstdint>
#include <optional>
#include <string>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"

namespace fq::detail {

/// Reads the histogram of a calibrator that has collected data. The calibrator must outlive the object.
class CollectedHistogram {
 public:
  explicit CollectedHistogram(const Calibrator& calibrator);

  [[nodiscard]] bool known() const noexcept { return known_; }
  /// Returns the collected histogram; empty if there is none, or if only zeros were collected.
  [[nodiscard]] const Histogram& histogram() const noexcept { return histogram_; }
  /// Returns the histogram with at most the count of the second bin in a first bin that begins at 0. The rest
  /// of that bin counts as zeros.
  [[nodiscard]] Histogram nonzero_histogram() const;
  /// Returns the number of counted values, 0 without a histogram.
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  /// Returns the largest magnitude. If the calibrator does not keep it, returns the upper edge of its last
  /// bin.
  [[nodiscard]] std::optional<double> largest() const noexcept { return largest_; }
  /// Returns amax by `method`: exact for the calibrator's own method, from the histogram for report_methods()
  /// and their one- and two-pass variants. Throws ArgumentError if amax cannot be computed.
  [[nodiscard]] Tensor amax(const std::string& method, AmaxOptions options) const;

 private:
  const Calibrator& calibrator_;
  bool known_ = true, counts_zeros_ = true;
  Histogram histogram_;
  std::optional<double> largest_;
  std::int64_t count_ = 0;
};

}  // namespace fq::detail
