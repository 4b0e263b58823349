#pragma once

/// Squared errors of quantizing a tensor with a range.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/calibration/detail/collected_histogram.h"

namespace fq::detail {

struct ErrorSums {
  double error = 0;   ///< sum of (y - x)^2
  double signal = 0;  ///< sum of x^2
};

/// Returns the sums over two f32 tensors of one shape and layout, in double. `counts` weights the elements;
/// empty means 1. Sums blocks in a fixed order, so that the number of threads does not change the bits.
[[nodiscard]] ErrorSums error_sums(const Tensor& x, const Tensor& y, std::span<const double> counts = {});

/// Returns a quantizer with the settings of `q`, but with another calib_method and without a range.
[[nodiscard]] std::unique_ptr<TensorQuantizer> with_method(const TensorQuantizer& q,
                                                           const std::string& method);
/// Sets the lowest and highest range to the smallest and largest element of `amax`.
void set_amax(RangeReport& range, const Tensor& amax);

/// Quantizes its values as a quantizer with the given fields would, and measures the error.
class RangeCost {
 public:
  RangeCost(const TensorQuantizer& q, QuantDescriptorOptions fields, const Tensor& values);
  RangeCost(const TensorQuantizer& q, QuantDescriptorOptions fields, const CollectedHistogram& collected);

  /// Sets the numbers of `range`. `amax` is undefined if ranges come from each input. Throws ArgumentError,
  /// after it has set amax, if the values are unknown.
  void measure(const Tensor& amax, RangeReport& range) const;

 private:
  void add_points(const CollectedHistogram& collected, float most_negative);
  [[nodiscard]] double clipped(const TensorQuantizer& q) const;

  const TensorQuantizer& like_;
  QuantDescriptorOptions fields_;
  std::string unknown_;         // reason why there are no values
  Tensor values_;               // f32
  std::vector<double> counts_;  // weight of each value; empty for 1
  double total_ = 0;
};

}  // namespace fq::detail
