#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/core/backend/cpu/ranges/search_kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/format.h"

namespace fq {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
/// Far above what rounding can change of a divergence of 2^16 bins.
constexpr double kRounding = 1e-8;
constexpr int kFewestLevelsLog2 = 3;    // of level_entropy
constexpr std::size_t kFirstLook = 16;  // the first pass tries one of this number of candidates

double x_log_x(double x) { return x > 0 ? x * std::log(x) : 0; }

/// Sums over the first i bins, for every i: terms of the divergence of a cut at i.
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

/// KL(P || Q) of cuts: P is the first i bins, the rest added to the last of them; Q spreads each of
/// 2^levels_log2 levels over its filled bins.
class Divergences {
 public:
  Divergences(std::vector<std::int64_t> bins, int levels_log2)
      : bins_(std::move(bins)),
        sums_(bins_),
        counts_(sums_.counts.begin(), sums_.counts.end()),
        filled_(sums_.filled.begin(), sums_.filled.end()),
        levels_log2_(levels_log2) {}

  [[nodiscard]] std::int64_t total() const noexcept { return sums_.counts.back(); }

  [[nodiscard]] bool keeps_nothing(std::size_t i) const noexcept { return sums_.counts[i] == 0; }

  [[nodiscard]] double exact(std::size_t i) const {
    const std::size_t levels = std::size_t{1} << levels_log2_;
    double expected = 0;
    for (std::size_t d = 0; d < levels; ++d)
      if (const double count = level_count(i, d); count > 0) expected += count * std::log(level_mean(i, d));
    return of(i, expected);
  }

  /// Within kRounding of the exact one.
  [[nodiscard]] double near(std::size_t i) const {
    if (levels_log2_ < kFewestLevelsLog2) return exact(i);
    return of(i, cpu::level_entropy({counts_.data(), filled_.data()}, i, levels_log2_));
  }

  /// A lower bound of the exact value: KL(P || Q) of whole levels; only the last level differs.
  [[nodiscard]] double floor(std::size_t i) const {
    const auto all = static_cast<double>(total()), kept = static_cast<double>(sums_.counts[i]);
    const double last = level_count(i, top_level(i)), tail = all - kept;
    // Joining bins to levels never raises a divergence (data processing inequality). Levels below the last
    // have equal shares in P and Q, so two terms remain.
    if (!(last > 0)) return -kInfinite;
    return std::log(kept / all) + (last + tail) / all * std::log((last + tail) / last);
  }

 private:
  /// The level of the last bin.
  [[nodiscard]] std::size_t top_level(std::size_t i) const noexcept {
    std::size_t top = (std::size_t{1} << levels_log2_) - 1;
    while (edge(i, top) == i) --top;
    return top;
  }
  /// The first bin behind `level` levels: ceil(level * i / levels).
  [[nodiscard]] std::size_t edge(std::size_t i, std::size_t level) const noexcept {
    return (level * i + (std::size_t{1} << levels_log2_) - 1) >> levels_log2_;
  }
  [[nodiscard]] double level_count(std::size_t i, std::size_t d) const {
    return static_cast<double>(sums_.counts[edge(i, d + 1)] - sums_.counts[edge(i, d)]);
  }
  [[nodiscard]] double level_mean(std::size_t i, std::size_t d) const {
    return level_count(i, d) / static_cast<double>(sums_.filled[edge(i, d + 1)] - sums_.filled[edge(i, d)]);
  }

  [[nodiscard]] double of(std::size_t i, double expected) const {
    const auto all = static_cast<double>(total()), kept = static_cast<double>(sums_.counts[i]);
    const double tail = all - kept, last = static_cast<double>(bins_[i - 1]);
    // P has the tail in a bin where Q has nothing: the divergence is infinite.
    if (kept == 0 || (tail > 0 && last == 0)) return kInfinite;
    const std::size_t top = top_level(i);
    const double density = level_count(i, top) > 0 ? level_mean(i, top) : 1;
    const double own = sums_.logs[i] - x_log_x(last) + x_log_x(last + tail);
    return (own - expected - tail * std::log(density)) / all - std::log(all) + std::log(kept);
  }

  std::vector<std::int64_t> bins_;
  Prefix sums_;
  std::vector<double> counts_, filled_;
  int levels_log2_;
};

/// Infinite for candidates that cannot have the smallest divergence.
std::vector<double> near_the_lowest(const Divergences& divergences, const std::vector<std::size_t>& cuts) {
  std::vector<double> out(cuts.size(), kInfinite);
  for (std::size_t k = 0; k < cuts.size(); k += kFirstLook) out[k] = divergences.near(cuts[k]);
  const double first = *std::ranges::min_element(out) + kRounding;
  for (std::size_t k = 0; k < cuts.size(); ++k)
    if (k % kFirstLook != 0 && !(divergences.floor(cuts[k]) > first)) out[k] = divergences.near(cuts[k]);
  const double limit = *std::ranges::min_element(out) + kRounding;
  for (std::size_t k = 0; k < out.size(); ++k)
    out[k] = out[k] <= limit ? divergences.exact(cuts[k]) : kInfinite;
  return out;
}

/// The counts, where a spike has the mean of the filled bins around it.
std::vector<double> replace_spikes(const std::vector<std::int64_t>& bins) {
  constexpr std::size_t reach = 32, fewest = 8;
  constexpr double spike = 16;
  const Prefix sums(bins);
  std::vector<double> out(bins.begin(), bins.end());
  for (std::size_t i = 0; i < bins.size(); ++i) {
    const std::size_t begin = i - std::min(i, reach), end = std::min(bins.size(), i + reach + 1);
    const auto filled = static_cast<std::size_t>(sums.filled[end] - sums.filled[begin]);
    if (bins[i] == 0 || filled <= fewest) continue;
    const auto others = static_cast<double>(sums.counts[end] - sums.counts[begin] - bins[i]);
    const double mean = others / static_cast<double>(filled - 1);
    if (out[i] > spike * mean) out[i] = mean;
  }
  return out;
}

/// The first cut that clips no more than one value in 2^levels_log2.
std::size_t first_cut(const std::vector<std::int64_t>& bins, int levels_log2) {
  const auto counts = replace_spikes(bins);
  const double most = std::ldexp(std::accumulate(counts.begin(), counts.end(), 0.0), -levels_log2);
  double clipped = 0;
  for (std::size_t i = counts.size(); i > 0; --i) {
    clipped += counts[i - 1];
    if (clipped > most) return i;
  }
  return 0;
}

std::vector<double> all_exact(const Divergences& divergences, const std::vector<std::size_t>& cuts) {
  std::vector<double> out;
  for (const std::size_t i : cuts) out.push_back(divergences.exact(i));
  return out;
}

}  // namespace

float amax_by_entropy(const Histogram& h, NumBits num_bits, bool is_unsigned, int stride, int start_bin,
                      std::vector<double>* divergences, bool exact, bool limits_clipping) {
  FQ_CHECK(num_bits.is_integer(), "entropy", "{} is a float format: use percentile or mse",
           to_string(num_bits));
  (void)Format(IntFormat{num_bits.bits(), is_unsigned});
  if (detail::is_empty(h, "entropy")) return 0;
  detail::check_search("entropy", h.counts.size(), stride, start_bin, 1, h.counts.size());
  auto bins = h.counts;
  // As ModelOpt: zeros, for example of ReLUs, would hide the distribution.
  if (bins.size() > 1) bins[0] = bins[1];
  const int levels_log2 = num_bits.bits() - (is_unsigned ? 0 : 1);
  const std::size_t least = limits_clipping ? first_cut(bins, levels_log2) : 0;
  const Divergences cut_divergences(std::move(bins), levels_log2);
  if (cut_divergences.total() == 0) return h.edges.back();
  std::vector<std::size_t> cuts;
  for (auto i = static_cast<std::size_t>(start_bin); i <= h.counts.size();
       i += static_cast<std::size_t>(stride))
    cuts.push_back(i);
  cuts.erase(cuts.begin(), std::min(std::ranges::lower_bound(cuts, least), std::prev(cuts.end())));
  const auto found =
      divergences != nullptr ? all_exact(cut_divergences, cuts) : near_the_lowest(cut_divergences, cuts);
  if (divergences != nullptr) *divergences = found;
  const auto empty =
      std::ranges::partition_point(cuts, [&](auto i) { return cut_divergences.keeps_nothing(i); });
  if (exact && empty != cuts.begin()) return h.edges[*std::prev(empty)];
  // The reference returns the last minimum.
  const auto best = std::ranges::min_element(found.rbegin(), found.rend());
  return h.edges[cuts[static_cast<std::size_t>(found.rend() - best) - 1]];
}

}  // namespace fq
