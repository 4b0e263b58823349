#pragma once

/// What a calibrator holds, read by any method.

#include <cstdint>
#include <optional>
#include <string>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"

namespace fq::detail {

/// Of a calibrator that has collected something and outlives it.
class CollectedHistogram {
 public:
  explicit CollectedHistogram(const Calibrator& calibrator);

  [[nodiscard]] bool known() const noexcept { return known_; }
  /// As collected; empty when there is none, and for zeros alone.
  [[nodiscard]] const Histogram& histogram() const noexcept { return histogram_; }
  /// The same with so many values in a first bin at 0 as its neighbour has: the others are zeros.
  [[nodiscard]] Histogram without_zeros() const;
  /// Values counted, 0 without a histogram.
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  /// The largest magnitude; of a calibrator that does not keep it the upper edge of its last bin.
  [[nodiscard]] std::optional<double> largest() const noexcept { return largest_; }
  /// By the calibrator's own method exactly as it chooses; by any of report_methods() and their one- and
  /// two-pass kinds from the histogram. Throws ArgumentError where it cannot be known.
  [[nodiscard]] Tensor amax(const std::string& method, AmaxOptions options) const;

 private:
  const Calibrator& calibrator_;
  bool known_ = true, counts_zeros_ = true;
  Histogram histogram_;
  std::optional<double> largest_;
  std::int64_t count_ = 0;
};

}  // namespace fq::detail
