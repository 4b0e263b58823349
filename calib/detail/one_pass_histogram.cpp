#include "fakequant/calib/detail/one_pass_histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"

namespace fq {
namespace {

constexpr const char* kOnePassHistogram = "one_pass_histogram";
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr std::int64_t kMostCounts = std::int64_t{1} << 62;

std::size_t checked(int num_bins) {
  constexpr int most = Histogram::max_bins / 2;
  FQ_CHECK(num_bins >= 2 && num_bins <= most, kOnePassHistogram, "num_bins is {}: use 2 to {}", num_bins,
           most);
  return static_cast<std::size_t>(num_bins);
}

/// Sum of all counts, or -1 if one is negative or the sum exceeds the limit.
std::int64_t total_count(const std::vector<std::int64_t>& counts) {
  std::int64_t total = 0;
  for (const std::int64_t count : counts) {
    if (count < 0 || count > kMostCounts - total) return -1;
    total += count;
  }
  return total;
}

/// One after the last bin that has counts.
std::size_t used(const std::vector<std::int64_t>& counts) {
  const auto last = std::find_if(counts.rbegin(), counts.rend(), [](std::int64_t c) { return c != 0; });
  return static_cast<std::size_t>(counts.rend() - last);
}

}  // namespace

OnePassHistogram::OnePassHistogram(int num_bins, bool skip_zeros)
    : skip_zeros_(skip_zeros), counts_(2 * checked(num_bins)) {}

OnePassHistogram::OnePassHistogram(int num_bins, bool skip_zeros, int exponent,
                                   std::vector<std::int64_t> counts)
    : OnePassHistogram(num_bins, skip_zeros) {
  FQ_CHECK(counts.size() == counts_.size(), kOnePassHistogram, "{} counts for {} bins: use two for each bin",
           counts.size(), num_bins);
  FQ_CHECK(total_count(counts) >= 0, kOnePassHistogram,
           "counts must not be negative, nor pass 2^62 together");
  // The least exponent leaves the largest magnitude in the upper half of the bins. This makes the bins a
  // function of the values alone.
  const bool least = exponent == min_exponent || used(counts) > counts.size() / 2;
  FQ_CHECK(exponent >= min_exponent && exponent <= required_exponent(kLargest) && least, kOnePassHistogram,
           "bins of width 2^{} do not fit the counts: the histogram is damaged", exponent);
  exponent_ = exponent;
  counts_ = std::move(counts);
}

int OnePassHistogram::required_exponent(float largest) const {
  int exponent = min_exponent;
  // A first guess from the exponents, at most the result. The loop decides with exact powers of two in f64.
  if (largest > 0) exponent = std::max(exponent, std::ilogb(largest) - std::ilogb(counts_.size()));
  while (static_cast<double>(largest) >= std::ldexp(static_cast<double>(counts_.size()), exponent))
    ++exponent;
  return exponent;
}

void OnePassHistogram::widen(int exponent) {
  // 2^shift neighbours become one bin. Shifts of 31 and more move all counts to bin 0, as there are fewer
  // than 2^31 bins.
  const int shift = std::min(exponent - exponent_, 31);
  exponent_ = exponent;
  if (shift == 0) return;
  for (std::size_t k = 1; k < counts_.size(); ++k)
    // In place: the target bin comes before bin k, and its own old count has moved already.
    counts_[k >> shift] += std::exchange(counts_[k], std::int64_t{0});
}

void OnePassHistogram::collect(const Tensor& x, float largest) {
  widen(std::max(exponent_, required_exponent(largest)));
  // A multiplication by a power of two does not round, so the bin of a value never depends on other values.
  detail::count(x, {std::ldexp(1.0f, -exponent_), 1.0f, kLargest, skip_zeros_}, counts_);
}

void OnePassHistogram::merge(const OnePassHistogram& other) {
  FQ_CHECK(counts_.size() == other.counts_.size() && skip_zeros_ == other.skip_zeros_, kOnePassHistogram,
           "{} bins with skip_zeros {} and {} with {} do not merge: collect both with the same settings",
           num_bins(), skip_zeros_, other.num_bins(), other.skip_zeros_);
  FQ_CHECK(total_count(counts_) <= kMostCounts - total_count(other.counts_), kOnePassHistogram,
           "the counts pass 2^62 together");
  const int exponent = std::max(exponent_, other.exponent_), shift = std::min(exponent - other.exponent_, 31);
  const auto added = other.counts_;
  widen(exponent);
  for (std::size_t k = 0; k < added.size(); ++k) counts_[k >> shift] += added[k];
}

Histogram OnePassHistogram::histogram() const {
  const std::size_t bins = used(counts_);
  // Only bin 0 has counts: all values are zeros or below 2^exponent.
  if (bins <= 1) return {};
  Histogram out{{counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(bins)}, {}};
  for (std::size_t k = 0; k <= bins; ++k)
    out.edges.push_back(static_cast<float>(
        std::min(std::ldexp(static_cast<double>(k), exponent_), static_cast<double>(kLargest))));
  return out;
}

}  // namespace fq
