#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/calib/histogram_methods.h"
#include "fakequant/core/check.h"
#include "fakequant/core/format.h"

namespace fq {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double x_log_x(double x) { return x > 0 ? x * std::log(x) : 0; }

/// Sums over the first i bins, for every i: what the divergence of a cut at i is made of.
struct Prefix {
  std::vector<std::int64_t> counts, filled;
  std::vector<double> logs;

  explicit Prefix(const std::vector<std::int64_t>& bins)
      : counts(bins.size() + 1), filled(bins.size() + 1), logs(bins.size() + 1) {
    for (std::size_t i = 0; i < bins.size(); ++i) {
      counts[i + 1] = counts[i] + bins[i];
      filled[i + 1] = filled[i] + (bins[i] > 0 ? 1 : 0);
      logs[i + 1] = logs[i] + x_log_x(static_cast<double>(bins[i]));
    }
  }
};

/// KL(P || Q): P is the first i bins, the rest added to the last of them; Q spreads each level over its
/// filled bins.
double divergence(const std::vector<std::int64_t>& bins, const Prefix& sums, std::size_t i,
                  std::size_t levels) {
  const auto total = static_cast<double>(sums.counts.back()), kept = static_cast<double>(sums.counts[i]);
  const auto tail = total - kept, last = static_cast<double>(bins[i - 1]);
  if (kept == 0 || (tail > 0 && last == 0)) return kInfinity;
  double expected = 0, density = 1;
  for (std::size_t d = 0, from = 0; d < levels; ++d) {
    const std::size_t to = d + 1 == levels ? i : ((d + 1) * i + levels - 1) / levels;
    const auto count = static_cast<double>(sums.counts[to] - sums.counts[from]);
    if (count > 0) {
      const double mean = count / static_cast<double>(sums.filled[to] - sums.filled[from]);
      expected += count * std::log(mean);
      if (to == i) density = mean;
    }
    from = to;
  }
  const double own = sums.logs[i] - x_log_x(last) + x_log_x(last + tail);
  return (own - expected - tail * std::log(density)) / total - std::log(total) + std::log(kept);
}

}  // namespace

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

float amax_by_entropy(const Histogram& h, NumBits num_bits, bool is_unsigned, int stride, int start_bin,
                      std::vector<double>* divergences) {
  FQ_CHECK(num_bits.is_integer(), "entropy", "{} is a float format: use percentile or mse",
           to_string(num_bits));
  (void)Format(IntFormat{num_bits.bits(), is_unsigned});
  if (detail::is_empty(h, "entropy")) return 0;
  detail::check_search("entropy", h.counts.size(), stride, start_bin, 1, h.counts.size());
  auto bins = h.counts;
  if (bins.size() > 1) bins[0] = bins[1];
  const Prefix sums(bins);
  if (sums.counts.back() == 0) return h.edges.back();
  const std::size_t levels = std::size_t{1} << (num_bits.bits() - (is_unsigned ? 0 : 1));
  auto best = static_cast<std::size_t>(start_bin);
  double lowest = kInfinity;
  for (auto i = best; i <= bins.size(); i += static_cast<std::size_t>(stride)) {
    const double d = divergence(bins, sums, i, levels);
    if (divergences != nullptr) divergences->push_back(d);
    if (d > lowest) continue;
    lowest = d;
    best = i;
  }
  return h.edges[best];
}

}  // namespace fq
