#include "fakequant/calib/detail/one_pass_calibrator.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/state_dict.h"

namespace fq {
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
