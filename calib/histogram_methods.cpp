#include "fakequant/calib/histogram_methods.h"

#include <algorithm>

#include "fakequant/core/check.h"
#include "fakequant/core/text.h"

namespace fq::detail {

void check_histogram_method(std::string_view method) {
  const std::vector<std::string> methods{"percentile", "histogram", "entropy", "mse"};
  FQ_CHECK(std::ranges::find(methods, method) != methods.end(), "histogram_calibrator",
           "the method '{}' is unknown{}", method, did_you_mean(method, methods));
}

float amax_of(const Histogram& histogram, std::string_view method, const AmaxOptions& o) {
  check_histogram_method(method);
  if (method == "percentile" || method == "histogram") return amax_by_percentile(histogram, o.percentile);
  const auto search = method == "entropy" ? amax_by_entropy : amax_by_mse;
  return search(histogram, o.num_bits, o.is_unsigned, o.stride, o.start_bin, nullptr);
}

}  // namespace fq::detail
