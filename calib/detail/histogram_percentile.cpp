#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/core/detail/check.h"

namespace fq {

float amax_by_percentile(const Histogram& h, double percentile) {
  FQ_CHECK(percentile >= 0 && percentile <= 100, "percentile", "{} is not a percentage: use 0 to 100",
           percentile);
  if (detail::is_empty(h, "percentile")) return 0;
  const auto total = static_cast<double>(h.total());
  double reached = 0;
  for (std::size_t i = 0; i < h.counts.size(); ++i) {
    reached += static_cast<double>(h.counts[i]) / total;
    if (reached >= percentile / 100) return h.edges[i];
  }
  return h.edges.back();
}

}  // namespace fq
