#pragma once

/// PyTorch's HistogramObserver.

#include <vector>

#include "fakequant/reference/observers/observers.h"

namespace fq::torch_ref {

/// A running histogram of equal bins over all that was seen, in which a search finds the range that quantizes
/// with the least squared error, elements spread evenly within their bins. It moves the ends inward by steps
/// of 1e-5 of the mass, the side that skips more bins first, until the error grows. When a new observation
/// widens the range, old counts are spread on the new bins by 16 pieces a bin. Infinite elements are left
/// out.
///
/// Per tensor only; observations and errors as in `observers.h`. Sums are in f32 where the reference has them
/// there, but in another order: results agree but for the last digits. Plain loops, meant for one tensor at a
/// time.
class HistogramObserver {
 public:
  /// `bins` at least 2.
  explicit HistogramObserver(ObserverOptions options = {}, int bins = 2048);

  void observe(const Tensor& x);
  [[nodiscard]] QParams calculate_qparams() const;
  /// The range seen; meaningless before the first observation.
  [[nodiscard]] float min_val() const noexcept { return min_; }
  [[nodiscard]] float max_val() const noexcept { return max_; }
  [[nodiscard]] const std::vector<float>& histogram() const noexcept { return histogram_; }

 private:
  AffineRule rule_;
  int bins_;
  std::vector<float> histogram_;  // empty before the first observation
  float min_ = 0, max_ = 0;
};

}  // namespace fq::torch_ref
