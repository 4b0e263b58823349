#include "fakequant/calib/detail/per_axis_calibrator.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/core/backend/ranges.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"

namespace fq {
namespace {

constexpr const char* kPerAxisCalibrator = "per_axis_calibrator";

/// Tensors of one name of all ranges, end to end.
Tensor joined(const std::vector<StateDict>& states, const std::string& name) {
  std::int64_t size = 0;
  for (const auto& state : states) size += state.at(name).nbytes();
  const DType dtype = states[0].at(name).dtype();
  Tensor out = Tensor::empty({size * 8 / bit_width(dtype)}, dtype);
  auto* to = static_cast<std::byte*>(out.mutable_raw());
  for (const auto& state : states) {
    const Tensor& part = state.at(name);
    to = std::copy_n(static_cast<const std::byte*>(part.raw()), part.nbytes(), to);
  }
  return out;
}

Tensor sizes(const std::vector<StateDict>& states, const std::string& name) {
  std::vector<std::int64_t> out;
  for (const auto& state : states) out.push_back(state.at(name).numel());
  return Tensor::from(out, {static_cast<std::int64_t>(out.size())});
}

/// Splits `values/<name>` into `count` tensors, one per range, with the lengths `sizes/<name>`.
std::vector<Tensor> split(const StateDict& state, const std::string& name, std::int64_t count) {
  const Tensor& all = state.at("values/" + name);
  std::vector<Tensor> out;
  std::int64_t at = 0;
  for (const std::int64_t size : state.at("sizes/" + name, {count}, DType::i64).to_vector<std::int64_t>()) {
    FQ_CHECK(all.rank() == 1 && size >= 0 && size <= all.numel() - at, kPerAxisCalibrator,
             "the state has not all of '{}': it is damaged", name);
    out.push_back(all.slice(at, at + size).clone());
    at += size;
  }
  return out;
}

}  // namespace

PerAxisCalibrator::PerAxisCalibrator(std::string_view method, const CalibratorOptions& options)
    : method_(method), options_(options), axis_(options.axis) {
  // Each range has a per-tensor calibrator of its own.
  options_.axis = {};
  FQ_CHECK(options.grid == HistogramGrid::torch, kPerAxisCalibrator,
           "the numpy grid is per tensor: leave axis out");
  // A calib_method names a histogram and its reading ("one_pass_mse"), or a reading alone ("mse").
  if (detail::histogram_reading(method).empty()) detail::check_histogram_method(method);
  passes_ = make_calibrator(method, options_)->passes();
}

PerAxisCalibrator::Ranges PerAxisCalibrator::make(std::int64_t count) const {
  // Limits memory: a state file or a wide weight could need any number of histograms.
  FQ_CHECK(count <= most_bins / options_.num_bins, kPerAxisCalibrator,
           "{} ranges of {} bins are more than {} bins: use fewer bins, max or mse_search", count,
           options_.num_bins, +most_bins);
  Ranges out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(make_calibrator(method_, options_));
  return out;
}

void PerAxisCalibrator::do_collect(const Tensor& x, float) {
  const auto rows = detail::range_rows(x.to(Device::cpu()), axis_, kPerAxisCalibrator);
  FQ_CHECK(ranges_.empty() || rows.shape == shape_, kPerAxisCalibrator,
           "this batch has ranges of shape {}, earlier ones {}: use batches of one shape, or call reset()",
           to_string(rows.shape), to_string(shape_));
  if (ranges_.empty()) ranges_ = make(rows.count());
  shape_ = rows.shape;
  for (std::int64_t r = 0; r < rows.count(); ++r)
    ranges_[static_cast<std::size_t>(r)]->collect(rows.values.slice(r, r + 1));
}

void PerAxisCalibrator::next_pass() {
  for (const auto& range : ranges_) range->next_pass();
}

Tensor PerAxisCalibrator::do_compute(const AmaxOptions& options) const {
  Tensor out = Tensor::empty(shape_);
  auto* amax = out.mutable_data<float>();
  for (const auto& range : ranges_) *amax++ = static_cast<float>(range->compute_amax(options).item());
  return out;
}

void PerAxisCalibrator::do_merge(const Calibrator& other) {
  const auto* from = dynamic_cast<const PerAxisCalibrator*>(&other);
  FQ_CHECK(from != nullptr && from->axis_ == axis_, "merge",
           "the calibrators keep different axes: calibrate both with one descriptor");
  FQ_CHECK(ranges_.empty() || from->ranges_.empty() || from->shape_ == shape_, "merge",
           "the calibrators have ranges of shapes {} and {}: use calibrators of one layer", to_string(shape_),
           to_string(from->shape_));
  if (from->ranges_.empty()) return;
  // Merges into copies: an error in one range leaves this calibrator unchanged.
  Ranges merged = make(static_cast<std::int64_t>(from->ranges_.size()));
  for (std::size_t r = 0; r < merged.size(); ++r) {
    if (!ranges_.empty()) merged[r]->load_state(ranges_[r]->state_dict());
    merged[r]->merge(*from->ranges_[r]);
  }
  ranges_ = std::move(merged);
  shape_ = from->shape_;
}

void PerAxisCalibrator::do_save(StateDict& state) const {
  std::vector<StateDict> states;
  nlohmann::json attributes = nlohmann::json::array();
  for (const auto& range : ranges_) {
    states.push_back(range->state_dict());
    attributes.push_back(states.back().attributes());
  }
  // All ranges of one name go into one tensor: a data set per channel would make files with thousands of data
  // sets. Lengths may differ, as histograms grow.
  for (const auto& name : states[0].names()) {
    state.set("values/" + name, joined(states, name));
    state.set("sizes/" + name, sizes(states, name));
  }
  state.set_attribute("ranges", std::move(attributes));
  state.set("shape", Tensor::from(shape_, {static_cast<std::int64_t>(shape_.size())}));
}

void PerAxisCalibrator::do_load(const StateDict& state) {
  const auto shape = state.at("shape", {state.at("shape").numel()}, DType::i64).to_vector<std::int64_t>();
  const auto& attributes = state.attribute("ranges");
  const bool good = std::ranges::all_of(shape, [](std::int64_t n) { return n > 0 && n <= most_bins; }) &&
                    attributes.is_array() && numel(shape) == static_cast<std::int64_t>(attributes.size());
  FQ_CHECK(good, kPerAxisCalibrator, "the state has {} ranges of shape {}: it is damaged", attributes.size(),
           to_string(shape));
  Ranges loaded = make(numel(shape));
  std::vector<StateDict> states(loaded.size());
  for (const auto& name : state.sub("values").names()) {
    const auto parts = split(state, name, numel(shape));
    for (std::size_t r = 0; r < parts.size(); ++r) states[r].set(name, parts[r]);
  }
  for (std::size_t r = 0; r < loaded.size(); ++r) {
    for (const auto& [name, value] : attributes[r].items()) states[r].set_attribute(name, value);
    loaded[r]->load_state(states[r]);
    FQ_CHECK(!loaded[r]->empty(), kPerAxisCalibrator, "the state has no values of range {}: it is damaged",
             r);
  }
  shape_ = shape;
  ranges_ = std::move(loaded);
}

}  // namespace fq
