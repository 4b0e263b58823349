#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/calib/histogram.h"
#include "fakequant/core/check.h"
#include "fakequant/core/format.h"
#include "fakequant/core/formulas.h"

namespace fq {
namespace {

/// A histogram that is not empty must have one edge more than counts, and counts whose sum is a count.
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

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_search(const char* where, std::size_t bins, int stride, int start_bin, int lowest,
                  std::size_t highest) {
  FQ_CHECK(stride >= 1, where, "stride is {}: use 1 or more", stride);
  FQ_CHECK(start_bin >= lowest && static_cast<std::size_t>(start_bin) <= highest, where,
           "start_bin is {} and the histogram has {} bins: use {} to {}", start_bin, bins, lowest, highest);
}

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

struct Point {
  float centre;
  double count;
};

float fake_quant(float x, float amax, const Format& format) {
  if (!format.is_integer()) {
    const float scale = scalar::modelopt_e4m3_scale_divided(amax);
    return scalar::modelopt_scaled_e4m3(x, scale, 1.0f / scale);
  }
  const float scale = scalar::modelopt_scale(amax, format.bound(), true);
  return scalar::modelopt_fake_quant(x, scale, scalar::modelopt_divisor(amax, scale, true), format.lower(),
                                     format.bound());
}

double squared_error(const std::vector<Point>& points, float amax, const Format& format, std::size_t bins) {
  double sum = 0;
  for (const Point& p : points) {
    const double error =
        static_cast<double>(fake_quant(p.centre, amax, format)) - static_cast<double>(p.centre);
    sum += error * error * p.count;
  }
  return sum / static_cast<double>(bins);
}

}  // namespace

float amax_by_percentile(const Histogram& h, double percentile) {
  FQ_CHECK(percentile >= 0 && percentile <= 100, "percentile", "{} is not a percentage: use 0 to 100",
           percentile);
  if (is_empty(h, "percentile")) return 0;
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
  if (is_empty(h, "entropy")) return 0;
  check_search("entropy", h.counts.size(), stride, start_bin, 1, h.counts.size());
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

float amax_by_mse(const Histogram& h, NumBits num_bits, bool is_unsigned, int stride, int start_bin,
                  std::vector<double>* errors) {
  const Format format = num_bits.is_integer() ? Format(IntFormat{num_bits.bits(), is_unsigned, true})
                                              : Format(FloatFormat{num_bits.exponent(), num_bits.mantissa()});
  FQ_CHECK(format.is_integer() || num_bits == NumBits(4, 3), "mse", "{}: use an integer format or (4, 3)",
           to_string(num_bits));
  if (is_empty(h, "mse")) return 0;
  check_search("mse", h.counts.size(), stride, start_bin, 0, h.counts.size() - 1);
  std::vector<float> centres;
  std::vector<Point> points;
  for (std::size_t k = 0; k < h.counts.size(); ++k) {
    centres.push_back((h.edges[k] + h.edges[k + 1]) * 0.5f);
    if (h.counts[k] > 0) points.push_back({centres[k], static_cast<double>(h.counts[k])});
  }
  const auto start = static_cast<std::int64_t>(start_bin), size = static_cast<std::int64_t>(centres.size());
  std::vector<double> results(static_cast<std::size_t>((size - start + stride - 1) / stride));
#pragma omp parallel for schedule(static)
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(results.size()); ++k)
    results[static_cast<std::size_t>(k)] =
        squared_error(points, centres[static_cast<std::size_t>(start + k * stride)], format, centres.size());
  const auto best = std::ranges::min_element(results) - results.begin();
  if (errors != nullptr) *errors = results;
  return centres[static_cast<std::size_t>(start + best * stride)];
}

}  // namespace fq
