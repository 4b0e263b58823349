#include <algorithm>

#include "fakequant/calib/histogram_calibrator.h"
#include "fakequant/calib/max_calibrator.h"
#include "fakequant/calib/moving_average_calibrator.h"
#include "fakequant/calib/one_pass_calibrator.h"
#include "fakequant/core/check.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/text.h"

namespace fq {

std::unique_ptr<Calibrator> make_calibrator(std::string_view method, const CalibratorOptions& options) {
  if (method == "max") return std::make_unique<MaxCalibrator>(options.axis);
  if (method == "moving_average")
    return std::make_unique<MovingAverageCalibrator>(options.axis, options.momentum);
  if (OnePassCalibrator::takes(method)) return std::make_unique<OnePassCalibrator>(method, options);
  const auto& methods = QuantDescriptor::calib_methods();
  if (std::ranges::find(methods, method) != methods.end())
    return std::make_unique<HistogramCalibrator>(method, options);
  throw ArgumentError(fmt::format("[make_calibrator] '{}' is unknown{}", method,
                                  detail::did_you_mean(method, {methods.begin(), methods.end()})));
}

}  // namespace fq
