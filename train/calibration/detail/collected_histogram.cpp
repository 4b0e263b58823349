#include "fakequant/train/calibration/detail/collected_histogram.h"

#include <algorithm>
#include <numeric>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/calib/detail/one_pass_calibrator.h"
#include "fakequant/calib/detail/per_axis_calibrator.h"
#include "fakequant/calib/detail/two_pass_calibrator.h"
#include "fakequant/calib/histogram.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/calibration/calibration_report.h"

namespace fq::detail {
namespace {

constexpr const char* kReport = "calibration_report";

/// Returns the number of values of a histogram, which counts zeros separately until it has bins.
std::int64_t counted(const Histogram& h) { return h.counts.empty() ? h.zeros : h.total(); }

double largest_amax(const Tensor& amax) { return std::ranges::max(amax.to(DType::f32).to_vector<float>()); }

}  // namespace

CollectedHistogram::CollectedHistogram(const Calibrator& calibrator) : calibrator_(calibrator) {
  counts_zeros_ = !skips_zeros(calibrator.method());
  // Calibrators store counts in different forms, and some have no histogram (`known_` is false).
  if (const auto* own = dynamic_cast<const HistogramCalibrator*>(&calibrator)) {
    histogram_ = own->histogram();
    count_ = counted(histogram_);
  } else if (const auto* two_pass = dynamic_cast<const TwoPassCalibrator*>(&calibrator)) {
    histogram_ = two_pass->histogram();
    count_ = counted(histogram_);
    known_ = count_ > 0;  // the first pass counts nothing
  } else if (const auto* one_pass = dynamic_cast<const OnePassCalibrator*>(&calibrator)) {
    const auto& counts = one_pass->counts().counts();
    histogram_ = one_pass->counts().histogram();
    count_ = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    largest_ = one_pass->largest();
  } else {
    known_ = false;
    if (calibrator.method() == "max") largest_ = largest_amax(calibrator.compute_amax());
  }
  if (known_ && !largest_) largest_ = histogram_.edges.empty() ? 0 : histogram_.edges.back();
}

Histogram CollectedHistogram::nonzero_histogram() const {
  Histogram out = histogram_;
  // The exact zeros of a ReLU are in the first bin and would dominate a divergence. The second bin estimates
  // the other values of the first one.
  if (counts_zeros_ && out.counts.size() > 1 && out.edges[0] == 0)
    out.counts[0] = std::min(out.counts[0], out.counts[1]);
  return out;
}

Tensor CollectedHistogram::amax(const std::string& method, AmaxOptions options) const {
  if (method == calibrator_.method()) return calibrator_.compute_amax(options);
  const std::string_view reading = histogram_reading(method);
  options.method = reading.empty() ? method : reading;
  // Each channel has a histogram of its own, which only the calibrator can read.
  if (dynamic_cast<const PerAxisCalibrator*>(&calibrator_) != nullptr && method != "max")
    return calibrator_.compute_amax(options);
  FQ_CHECK(known_, kReport, "collected by {}, which keeps no histogram of the tensor", calibrator_.method());
  FQ_CHECK(std::ranges::find(report_methods(), options.method) != report_methods().end(), kReport,
           "{} is not read from a histogram", method);
  if (options.method == "max") return Tensor::scalar(*largest());
  if (skips_zeros(options.method))
    return Tensor::scalar(histogram_amax(nonzero_histogram(), options.method, options));
  return calibrator_.compute_amax(options);
}

}  // namespace fq::detail
