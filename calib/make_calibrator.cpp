#include <algorithm>

#include "fakequant/calib/histogram_calibrator.h"
#include "fakequant/calib/lsq_calibrator.h"
#include "fakequant/calib/max_calibrator.h"
#include "fakequant/calib/moving_average_calibrator.h"
#include "fakequant/calib/mse_search_calibrator.h"
#include "fakequant/calib/one_pass_calibrator.h"
#include "fakequant/calib/per_axis_calibrator.h"
#include "fakequant/calib/scale_sweep_calibrator.h"
#include "fakequant/calib/two_pass_calibrator.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/text.h"

namespace fq {

namespace {

std::unique_ptr<Calibrator> histograms(std::string_view method, CalibratorOptions options) {
  options.skip_zeros = options.skip_zeros || method.ends_with("octav");
  if (!options.axis.empty()) return std::make_unique<PerAxisCalibrator>(method, options);
  if (OnePassCalibrator::takes(method)) return std::make_unique<OnePassCalibrator>(method, options);
  if (TwoPassCalibrator::takes(method)) return std::make_unique<TwoPassCalibrator>(method, options);
  return std::make_unique<HistogramCalibrator>(method, options);
}

}  // namespace

std::unique_ptr<Calibrator> make_calibrator(std::string_view method, const CalibratorOptions& options) {
  if (method == "max") return std::make_unique<MaxCalibrator>(options.axis);
  if (method == "moving_average")
    return std::make_unique<MovingAverageCalibrator>(options.axis, options.momentum);
  if (method == "lsq") return std::make_unique<LsqCalibrator>(options.axis, options.skip_zeros);
  if (method == "mse_search") return std::make_unique<MseSearchCalibrator>(options);
  if (method == "scale_sweep") return std::make_unique<ScaleSweepCalibrator>(options);
  const auto& methods = QuantDescriptor::calib_methods();
  if (std::ranges::find(methods, method) != methods.end()) return histograms(method, options);
  throw ArgumentError(fmt::format("[make_calibrator] '{}' is unknown{}", method,
                                  detail::did_you_mean(method, {methods.begin(), methods.end()})));
}

}  // namespace fq
