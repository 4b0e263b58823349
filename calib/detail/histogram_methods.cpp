#include "fakequant/calib/detail/histogram_methods.h"

#include <algorithm>
#include <limits>

#include "fakequant/calib/octav.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/text.h"

namespace fq::detail {

bool is_empty(const Histogram& h, const char* where) {
  FQ_CHECK(h.counts.empty() || h.edges.size() == h.counts.size() + 1, where,
           "{} counts and {} edges: give one edge more than counts", h.counts.size(), h.edges.size());
  std::int64_t left = std::numeric_limits<std::int64_t>::max() / 2;
  for (const std::int64_t count : h.counts) {
    FQ_CHECK(count >= 0 && count <= left, where,
             "a count is {}: counts must not be negative, nor pass 2^62 together", count);
    left -= count;
  }
  return h.counts.empty();
}

void check_search(const char* where, std::size_t bins, int stride, int start_bin, int lowest,
                  std::size_t highest) {
  FQ_CHECK(stride >= 1, where, "stride is {}: use 1 or more", stride);
  FQ_CHECK(start_bin >= lowest && static_cast<std::size_t>(start_bin) <= highest, where,
           "start_bin is {} and the histogram has {} bins: use {} to {}", start_bin, bins, lowest, highest);
}

void check_histogram_method(std::string_view method) {
  const std::vector<std::string> methods{"percentile", "histogram", "entropy", "mse", "octav"};
  FQ_CHECK(std::ranges::find(methods, method) != methods.end(), "histogram_calibrator",
           "the method '{}' is unknown{}", method, did_you_mean(method, methods));
}

std::string_view histogram_reading(std::string_view method, std::string_view kind) noexcept {
  if (method == kind) return "percentile";
  if (!method.starts_with(kind) || method.substr(kind.size(), 1) != "_") return {};
  method.remove_prefix(kind.size() + 1);
  return method == "entropy" || method == "mse" || method == "octav" ? method : std::string_view{};
}

float amax_of(const Histogram& histogram, std::string_view method, const AmaxOptions& o) {
  check_histogram_method(method);
  if (method == "percentile" || method == "histogram") return amax_by_percentile(histogram, o.percentile);
  if (method == "octav") return amax_by_octav(histogram, o.num_bits, o.is_unsigned);
  return method == "entropy" ? amax_by_entropy(histogram, o.num_bits, o.is_unsigned, o.stride, o.start_bin)
                             : amax_by_mse(histogram, o.num_bits, o.is_unsigned, o.stride, o.start_bin);
}

}  // namespace fq::detail
