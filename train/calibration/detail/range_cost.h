#pragma once

/// Squared errors of quantizing a tensor, and the cost of a range by them.

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
  double error = 0;   ///< of (y - x)^2
  double signal = 0;  ///< of x^2
};

/// Of two f32 tensors of one shape and layout, in double; each element as often as `counts` says, once
/// without it. In blocks that are added in order, so that the number of threads does not matter.
[[nodiscard]] ErrorSums error_sums(const Tensor& x, const Tensor& y, std::span<const double> counts = {});

/// A quantizer like it, with another calib_method and without a range.
[[nodiscard]] std::unique_ptr<TensorQuantizer> with_method(const TensorQuantizer& q,
                                                           const std::string& method);
/// Its smallest and largest element.
void set_amax(RangeReport& range, const Tensor& amax);

/// Quantizes the values that it was made of, as the quantizer would that has these fields.
class RangeCost {
 public:
  RangeCost(const TensorQuantizer& q, QuantDescriptorOptions fields, const Tensor& values);
  RangeCost(const TensorQuantizer& q, QuantDescriptorOptions fields, const CollectedHistogram& collected);

  /// Fills `range`. `amax` is undefined where ranges come from each input. Throws ArgumentError, with amax
  /// filled in, when the values are not known.
  void measure(const Tensor& amax, RangeReport& range) const;

 private:
  void add_points(const CollectedHistogram& collected, float most_negative);
  [[nodiscard]] double clipped(const TensorQuantizer& q) const;

  const TensorQuantizer& like_;
  QuantDescriptorOptions fields_;
  std::string unknown_;         // why there are no values
  Tensor values_;               // f32
  std::vector<double> counts_;  // of each value; none: once
  double total_ = 0;
};

}  // namespace fq::detail
