#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/calib/histogram.h"
#include "fakequant/core/detail/check.h"

namespace fq {
namespace {

constexpr const char* kHistogramCalibrator = "histogram_calibrator";

}  // namespace

std::unique_ptr<Calibrator> detail::make_histogram(std::string_view method,
                                                   const CalibratorOptions& options) {
  return std::make_unique<HistogramCalibrator>(method, options);
}

HistogramCalibrator::HistogramCalibrator(std::string_view method, const CalibratorOptions& options)
    : method_(method), num_bins_(options.num_bins), skip_zeros_(options.skip_zeros), grid_(options.grid) {
  detail::check_histogram_method(method_);
  FQ_CHECK(options.axis.empty(), kHistogramCalibrator,
           "axis is given and histograms are per tensor: leave axis out, or use make_calibrator");
  FQ_CHECK(num_bins_ >= 2 && num_bins_ <= Histogram::max_bins, kHistogramCalibrator,
           "num_bins is {}: use 2 to {}", num_bins_, +Histogram::max_bins);
}

void HistogramCalibrator::do_collect(const Tensor& x, float largest) {
  if (grid_ == HistogramGrid::numpy)
    histogram_.collect_numpy(x, num_bins_, skip_zeros_);
  else
    histogram_.collect(x, largest, num_bins_, skip_zeros_);
}

Tensor HistogramCalibrator::do_compute(const AmaxOptions& o) const {
  return Tensor::scalar(detail::histogram_amax(histogram_, o.method.empty() ? method_ : o.method, o));
}

void HistogramCalibrator::do_save(StateDict& state) const { detail::save_histogram(histogram_, state); }

void HistogramCalibrator::do_load(const StateDict& state) {
  histogram_ = detail::load_histogram(state, grid_ != HistogramGrid::numpy, kHistogramCalibrator);
}

}  // namespace fq
