#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/per_axis_calibrator.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq {

std::unique_ptr<Calibrator> make_calibrator(std::string_view method, const CalibratorOptions& options) {
  const auto* found = detail::find_calib_method(method);
  const auto& methods = QuantDescriptor::calib_methods();
  FQ_CHECK(found != nullptr, "make_calibrator", "'{}' is unknown{}", method,
           detail::did_you_mean(method, {methods.begin(), methods.end()}));
  if (found->reading.empty()) return found->make(method, options);
  CalibratorOptions counted = options;
  counted.skip_zeros = options.skip_zeros || detail::skips_zeros(method);
  if (!options.axis.empty()) return std::make_unique<PerAxisCalibrator>(method, counted);
  return found->make(method, counted);
}

}  // namespace fq
