#include "fakequant/calib/histogram_calibrator.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fakequant/calib/histogram_methods.h"
#include "fakequant/core/check.h"
#include "fakequant/core/io/state_dict.h"

namespace fq {
namespace {

constexpr const char* kWhere = "histogram_calibrator";

}  // namespace

HistogramCalibrator::HistogramCalibrator(std::string_view method, const CalibratorOptions& options)
    : method_(method), num_bins_(options.num_bins), skip_zeros_(options.skip_zeros), grid_(options.grid) {
  detail::check_histogram_method(method_);
  FQ_CHECK(options.axis.empty(), kWhere,
           "axis is given and histograms are per tensor: leave axis out, or use make_calibrator");
  FQ_CHECK(num_bins_ >= 2 && num_bins_ <= Histogram::max_bins, kWhere, "num_bins is {}: use 2 to {}",
           num_bins_, +Histogram::max_bins);
}

void HistogramCalibrator::do_collect(const Tensor& x, float largest) {
  if (grid_ == HistogramGrid::numpy)
    histogram_.collect_numpy(x, num_bins_, skip_zeros_);
  else
    histogram_.collect(x, largest, num_bins_, skip_zeros_);
}

Tensor HistogramCalibrator::do_compute(const AmaxOptions& o) const {
  return Tensor::scalar(detail::amax_of(histogram_, o.method.empty() ? method_ : o.method, o));
}

void HistogramCalibrator::do_save(StateDict& state) const {
  state.set("counts", Tensor::from(histogram_.counts, {static_cast<std::int64_t>(histogram_.counts.size())}));
  state.set("edges", Tensor::from(histogram_.edges, {static_cast<std::int64_t>(histogram_.edges.size())}));
  state.set("zeros", Tensor::from({histogram_.zeros}));
}

void HistogramCalibrator::do_load(const StateDict& state) {
  const Tensor& counts = state.at("counts");
  const std::int64_t bins = counts.numel();
  Histogram loaded{state.at("counts", {bins}, DType::i64).to_vector<std::int64_t>(),
                   state.at("edges", {bins == 0 ? 0 : bins + 1}, DType::f32).to_vector<float>(),
                   state.at("zeros", {1}, DType::i64).data<std::int64_t>()[0]};
  const auto negative = [](std::int64_t count) { return count < 0; };
  const auto falls = [](float a, float b) { return !(a < b) || !std::isfinite(b); };
  const bool good = std::ranges::none_of(loaded.counts, negative) && loaded.zeros >= 0 &&
                    bins <= Histogram::max_bins &&
                    std::ranges::adjacent_find(loaded.edges, falls) == loaded.edges.end() &&
                    (bins == 0 || loaded.edges[0] == 0 || grid_ == HistogramGrid::numpy);
  FQ_CHECK(good, kWhere, "the state is no histogram: counts must not be negative and edges must rise from 0");
  histogram_ = std::move(loaded);
}

}  // namespace fq
