#include "fakequant/calib/calibrator.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/per_axis_calibrator.h"
#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/state_dict.h"

namespace fq {
namespace {

constexpr const char* kMerge = "merge";

}  // namespace

void Calibrator::collect(const Tensor& x) {
  FQ_CHECK(x.defined(), "calibrator", "the tensor is undefined: use a batch");
  FQ_CHECK(is_floating(x.dtype()), "calibrator", "the batch is {}: use f32, f16, bf16 or f64",
           name(x.dtype()));
  // Tracing runs the model on `meta`, where a batch has no values.
  if (x.numel() == 0 || x.device().is_meta()) return;
  const Tensor values = x.to(DType::f32);
  const detail::ValueRange range = detail::range(values);
  detail::check_finite(range.largest, "calibrator");
  // Calibrators see finite f32 values only. `largest` is passed on, so that per-tensor ranges need no second
  // pass over the batch.
  do_collect(values, range.largest);
  // amax has the dtype of the data, as in ModelOpt; f64 is computed in f32.
  if (empty()) dtype_ = x.dtype() == DType::f64 ? DType::f32 : x.dtype();
  minimum_ = std::min(minimum_.value_or(range.minimum), range.minimum);
}

void Calibrator::merge(const Calibrator& other) {
  FQ_CHECK(method() == other.method(), kMerge, "'{}' and '{}' do not merge: use calibrators of one method",
           method(), other.method());
  FQ_CHECK(empty() || other.empty() || dtype_ == other.dtype_, kMerge,
           "one calibrator collected batches of {}, the other of {}: use one dtype for both", name(dtype_),
           name(other.dtype_));
  do_merge(other);
  if (other.empty()) return;
  dtype_ = other.dtype_;
  minimum_ = std::min(minimum_.value_or(*other.minimum_), *other.minimum_);
}

void Calibrator::do_merge(const Calibrator&) {
  throw ArgumentError(
      fmt::format("[{}] '{}' depends on the order of its batches and does not merge: use max, or "
                  "one_pass for histograms",
                  kMerge, method()));
}

Tensor Calibrator::compute_amax(const AmaxOptions& options) const {
  FQ_CHECK(!empty(), "calibrator", "nothing was collected: calibrate with at least one batch");
  return do_compute(options).to(dtype_);
}

void Calibrator::reset() {
  do_reset();
  minimum_.reset();
}

StateDict Calibrator::state_dict() const {
  StateDict state;
  if (empty()) return state;
  do_save(state);
  state.set_attribute("method", method());
  state.set_attribute("minimum", static_cast<double>(*minimum_));
  state.set_attribute("dtype", name(dtype_));
  return state;
}

void Calibrator::load_state(const StateDict& state) {
  if (state.size() == 0 && !state.has_attribute("method")) return reset();
  const auto &saved = state.attribute("method"), &minimum = state.attribute("minimum"),
             &type = state.attribute("dtype");
  FQ_CHECK(saved.is_string() && minimum.is_number() && type.is_string(), "calibrator",
           "the state has attributes of wrong types: it is not from a calibrator");
  FQ_CHECK(saved.get<std::string>() == method(), "calibrator",
           "the state is of a '{}' calibrator, this one is '{}'", saved.get<std::string>(), method());
  const auto lowest = minimum.get<float>();
  const DType dtype = dtype_from_name(type.get<std::string>());
  FQ_CHECK(std::isfinite(lowest) && is_floating(dtype), "calibrator",
           "the state has minimum {} and dtype {}: it is damaged", lowest, name(dtype));
  // First, because it may throw: minimum and dtype then still fit the collected data.
  do_load(state);
  minimum_ = lowest;
  dtype_ = dtype;
}

std::unique_ptr<Calibrator> make_calibrator(std::string_view method, const CalibratorOptions& options) {
  const auto* found = detail::find_calib_method(method);
  const auto& methods = QuantDescriptor::calib_methods();
  FQ_CHECK(found != nullptr, "make_calibrator", "'{}' is unknown{}", method,
           detail::did_you_mean(method, {methods.begin(), methods.end()}));
  if (found->reading.empty()) return found->make(method, options);
  CalibratorOptions counted = options;
  // OCTAV sums over values above 0. In a histogram, zeros would count as small values of the first bin.
  counted.skip_zeros = options.skip_zeros || detail::skips_zeros(method);
  if (!options.axis.empty()) return std::make_unique<PerAxisCalibrator>(method, counted);
  return found->make(method, counted);
}

}  // namespace fq
