#include "fakequant/calib/detail/two_pass_calibrator.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"

namespace fq {
namespace {

constexpr const char* kTwoPassCalibrator = "two_pass_calibrator";

}  // namespace

std::unique_ptr<Calibrator> detail::make_two_pass(std::string_view method, const CalibratorOptions& options) {
  return std::make_unique<TwoPassCalibrator>(method, options);
}

TwoPassCalibrator::TwoPassCalibrator(std::string_view method, const CalibratorOptions& options)
    : method_(method), num_bins_(options.num_bins), skip_zeros_(options.skip_zeros) {
  detail::check_kind("two_pass", method, kTwoPassCalibrator);
  FQ_CHECK(options.axis.empty(), kTwoPassCalibrator,
           "axis is given and histograms are per tensor: leave axis out, or use make_calibrator");
  FQ_CHECK(num_bins_ >= 2 && num_bins_ <= Histogram::max_bins, kTwoPassCalibrator,
           "num_bins is {}: use 2 to {}", num_bins_, +Histogram::max_bins);
}

void TwoPassCalibrator::do_collect(const Tensor& x, float largest) {
  // First pass: the range of the bins. The second pass then counts in bins that never grow.
  if (!counting_) {
    largest_ = std::max(largest_, largest);
    return;
  }
  FQ_CHECK(
      largest <= largest_, kTwoPassCalibrator,
      "the second pass has a magnitude of {}, the first had {} at most: use the same data in both passes",
      largest, largest_);
  histogram_.collect(x, largest_, num_bins_, skip_zeros_);
}

void TwoPassCalibrator::do_merge(const Calibrator& other) {
  const auto* from = dynamic_cast<const TwoPassCalibrator*>(&other);
  FQ_CHECK(from != nullptr && from->num_bins_ == num_bins_ && from->skip_zeros_ == skip_zeros_, "merge",
           "the calibrators have other num_bins or skip_zeros: calibrate both with the same settings");
  if (other.empty()) return;
  // An empty calibrator joins either pass.
  if (empty()) counting_ = from->counting_;
  FQ_CHECK(counting_ == from->counting_, "merge",
           "one calibrator is in its first pass, the other in its second: merge after the same pass");
  // Counts can be added only if both histograms have the same edges.
  FQ_CHECK(empty() || !counting_ || largest_ == from->largest_, "merge",
           "one calibrator counts up to {}, the other up to {}: merge after the first pass, then count",
           largest_, from->largest_);
  largest_ = std::max(largest_, from->largest_);
  if (histogram_.counts.empty()) {
    // Without a grid this histogram has only zeros, counted apart.
    const std::int64_t zeros = std::exchange(histogram_, from->histogram_).zeros;
    histogram_.zeros += zeros;
    return;
  }
  // Equal grids: the counts of equal bins are added.
  std::ranges::transform(histogram_.counts, from->histogram_.counts, histogram_.counts.begin(), std::plus{});
}

Tensor TwoPassCalibrator::do_compute(const AmaxOptions& o) const {
  FQ_CHECK(counting_, kTwoPassCalibrator,
           "only the first pass was collected: call next_pass() and collect the data again");
  const auto reading = detail::histogram_reading(method_);
  return Tensor::scalar(detail::histogram_amax(histogram_, o.method.empty() ? reading : o.method, o));
}

void TwoPassCalibrator::do_reset() {
  counting_ = false;
  largest_ = 0;
  histogram_ = {};
}

void TwoPassCalibrator::do_save(StateDict& state) const {
  detail::save_histogram(histogram_, state);
  state.set("largest", Tensor::from({largest_}));
  state.set_attribute("num_bins", num_bins_);
  state.set_attribute("skip_zeros", skip_zeros_);
  state.set_attribute("counting", counting_);
}

void TwoPassCalibrator::do_load(const StateDict& state) {
  const auto &bins = state.attribute("num_bins"), &skip = state.attribute("skip_zeros"),
             &counting = state.attribute("counting");
  FQ_CHECK(
      bins == num_bins_ && skip == skip_zeros_, kTwoPassCalibrator,
      "the state has num_bins {} and skip_zeros {}, this calibrator {} and {}: build it with the state's",
      bins.dump(), skip.dump(), num_bins_, skip_zeros_);
  Histogram loaded = detail::load_histogram(state, true, kTwoPassCalibrator);
  const float largest = *state.at("largest", {1}, DType::f32).data<float>();
  // Bins exist only in the second pass, and their last edge is the magnitude that the first pass found.
  const bool good = counting.is_boolean() && std::isfinite(largest) && largest >= 0 &&
                    (loaded.counts.empty() || (counting == true && loaded.edges.back() == largest &&
                                               loaded.counts.size() == static_cast<std::size_t>(num_bins_)));
  FQ_CHECK(good, kTwoPassCalibrator, "the state has a largest magnitude of {} and other bins: it is damaged",
           largest);
  counting_ = counting.get<bool>();
  largest_ = largest;
  histogram_ = std::move(loaded);
}

}  // namespace fq
