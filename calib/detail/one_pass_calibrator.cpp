#include "fakequant/calib/detail/one_pass_calibrator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/state_dict.h"

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
namespace {

constexpr const char* kOnePassCalibrator = "one_pass_calibrator";

/// Unknown when one of the two is.
std::optional<float> larger(std::optional<float> a, std::optional<float> b) {
  return a && b ? std::optional(std::max(*a, *b)) : std::nullopt;
}

// Returns the largest magnitude, or no value for a state of a version that did not store it.
std::optional<float> saved_largest(const StateDict& state) {
  if (!state.has_attribute("largest")) return std::nullopt;
  const auto& saved = state.attribute("largest");
  FQ_CHECK(saved.is_number() && saved.get<float>() >= 0 && std::isfinite(saved.get<float>()),
           kOnePassCalibrator, "the state has a largest magnitude of {}: it is damaged", saved.dump());
  return saved.get<float>();
}

}  // namespace

std::unique_ptr<Calibrator> detail::make_one_pass(std::string_view method, const CalibratorOptions& options) {
  return std::make_unique<OnePassCalibrator>(method, options);
}

OnePassCalibrator::OnePassCalibrator(std::string_view method, const CalibratorOptions& options)
    : method_(method), histogram_(options.num_bins, options.skip_zeros) {
  detail::check_kind("one_pass", method, kOnePassCalibrator);
  FQ_CHECK(options.axis.empty(), kOnePassCalibrator,
           "axis is given and histograms are per tensor: leave axis out, or use make_calibrator");
}

void OnePassCalibrator::do_collect(const Tensor& x, float largest) {
  // The histogram decides the result. `largest_` is a fact for reports.
  histogram_.collect(x, largest);
  largest_ = empty() ? largest : larger(largest_, largest);
}

void OnePassCalibrator::do_merge(const Calibrator& other) {
  const auto* from = dynamic_cast<const OnePassCalibrator*>(&other);
  FQ_CHECK(from != nullptr, kOnePassCalibrator,
           "the other '{}' is another class: merge calibrators of one class", other.method());
  histogram_.merge(from->histogram_);
  if (!other.empty()) largest_ = empty() ? from->largest_ : larger(largest_, from->largest_);
}

Tensor OnePassCalibrator::do_compute(const AmaxOptions& o) const {
  const auto reading = detail::histogram_reading(method_);
  return Tensor::scalar(
      detail::histogram_amax(histogram_.histogram(), o.method.empty() ? reading : o.method, o));
}

void OnePassCalibrator::do_reset() {
  histogram_ = OnePassHistogram(histogram_.num_bins(), histogram_.skip_zeros());
  largest_.reset();
}

void OnePassCalibrator::do_save(StateDict& state) const {
  state.set("counts",
            Tensor::from(histogram_.counts(), {static_cast<std::int64_t>(histogram_.counts().size())}));
  state.set_attribute("num_bins", histogram_.num_bins());
  state.set_attribute("skip_zeros", histogram_.skip_zeros());
  state.set_attribute("exponent", histogram_.exponent());
  if (largest_) state.set_attribute("largest", static_cast<double>(*largest_));
}

void OnePassCalibrator::do_load(const StateDict& state) {
  const auto &bins = state.attribute("num_bins"), &skip = state.attribute("skip_zeros"),
             &exponent = state.attribute("exponent");
  FQ_CHECK(bins.is_number_integer() && skip.is_boolean() && exponent.is_number_integer(), kOnePassCalibrator,
           "the state has attributes of wrong types: it is not from a one-pass calibrator");
  FQ_CHECK(
      bins == histogram_.num_bins() && skip == histogram_.skip_zeros(), kOnePassCalibrator,
      "the state has num_bins {} and skip_zeros {}, this calibrator {} and {}: build it with the state's",
      bins.dump(), skip.dump(), histogram_.num_bins(), histogram_.skip_zeros());
  // 127 is the exponent of the largest float. The histogram checks the counts.
  FQ_CHECK(exponent >= OnePassHistogram::min_exponent && exponent <= 127, kOnePassCalibrator,
           "the state has bins of width 2^{}: it is damaged", exponent.dump());
  const std::optional<float> largest = saved_largest(state);
  const Tensor& counts = state.at("counts", {2 * std::int64_t{histogram_.num_bins()}}, DType::i64);
  // The constructor rejects counts that no data can give, before anything changes.
  histogram_ = OnePassHistogram(histogram_.num_bins(), histogram_.skip_zeros(),
                                detail::whole_value<int>(exponent), counts.to_vector<std::int64_t>());
  largest_ = largest;
}

}  // namespace fq
