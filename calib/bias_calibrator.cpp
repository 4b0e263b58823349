#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"

namespace fq {
namespace {

constexpr const char* kBiasCalibrator = "bias_calibrator";
constexpr double kNoBound = std::numeric_limits<double>::infinity();

std::string_view method_name(BiasMethod method) { return method == BiasMethod::mean ? "mean" : "max_min"; }

// Updates the largest and the smallest element of each range.
void widen(const detail::RangeRows& rows, std::vector<double>& largest, std::vector<double>& smallest) {
#pragma omp parallel for schedule(static) if (rows.values.numel() > 65536)
  for (std::int64_t r = 0; r < rows.count(); ++r) {
    const auto [low, high] = std::minmax_element(rows.row(r), rows.row(r) + rows.length());
    const auto k = static_cast<std::size_t>(r);
    largest[k] = std::max(largest[k], static_cast<double>(*high));
    smallest[k] = std::min(smallest[k], static_cast<double>(*low));
  }
}

std::vector<double> loaded(const StateDict& state, const char* name, const Shape& shape) {
  auto out = state.at(name, shape, DType::f64).to_vector<double>();
  FQ_CHECK(std::ranges::all_of(out, [](double v) { return std::isfinite(v); }), kBiasCalibrator,
           "the state is damaged: '{}' has a NaN or an infinity", name);
  return out;
}

}  // namespace

void BiasCalibrator::collect(const Tensor& x) {
  FQ_CHECK(x.defined() && is_floating(x.dtype()), kBiasCalibrator,
           "the batch has no float type: use f32, f16, bf16 or f64");
  if (x.numel() == 0 || x.device().is_meta()) return;
  // Sums have a kernel on every device, the two extremes only the loop above.
  const Device device = method_ == BiasMethod::mean ? x.device() : Device::cpu();
  const Tensor values = x.to(device).to(DType::f32);
  // A NaN would make the mean NaN, but would not change an extreme: both methods reject it.
  detail::check_finite(detail::range(values).largest, kBiasCalibrator);
  const auto rows = detail::range_rows(values, axis_, kBiasCalibrator);
  FQ_CHECK(empty() || rows.shape == shape_, kBiasCalibrator,
           "this batch has ranges of shape {}, earlier ones {}: use batches of one shape, or call reset()",
           to_string(rows.shape), to_string(shape_));
  // `first_` has the sums (mean) or the largest elements (max_min), `second_` the smallest elements.
  if (empty()) {
    const auto ranges = static_cast<std::size_t>(rows.count());
    shape_ = rows.shape;
    dtype_ = x.dtype() == DType::f64 ? DType::f32 : x.dtype();
    first_.assign(ranges, method_ == BiasMethod::mean ? 0 : -kNoBound);
    second_.assign(method_ == BiasMethod::mean ? 0 : ranges, kNoBound);
  }
  // Elements per range: every range of a batch has the same number.
  count_ += rows.length();
  if (method_ == BiasMethod::mean)
    detail::run(x.device(), &detail::Kernels::add_values, rows, first_);
  else
    widen(rows, first_, second_);
}

Tensor BiasCalibrator::compute_bias() const {
  FQ_CHECK(!empty(), kBiasCalibrator, "nothing was collected: calibrate with at least one batch");
  Tensor out = Tensor::empty(shape_);
  auto* bias = out.mutable_data<float>();
  for (std::size_t r = 0; r < first_.size(); ++r)
    // max_min: the center of the range, as in ModelOpt's BiasCalibrator.
    bias[r] = method_ == BiasMethod::mean ? static_cast<float>(first_[r] / static_cast<double>(count_))
                                          : static_cast<float>(first_[r] + second_[r]) / 2;
  return out.to(dtype_);
}

void BiasCalibrator::reset() {
  count_ = 0;
  first_.clear();
  second_.clear();
}

StateDict BiasCalibrator::state_dict() const {
  StateDict state;
  if (empty()) return state;
  const bool mean = method_ == BiasMethod::mean;
  state.set(mean ? "sums" : "largest", Tensor::from(first_, shape_));
  if (!mean) state.set("smallest", Tensor::from(second_, shape_));
  state.set("count", Tensor::from({count_}));
  state.set_attribute("method", method_name(method_));
  state.set_attribute("dtype", name(dtype_));
  return state;
}

void BiasCalibrator::load_state(const StateDict& state) {
  if (state.size() == 0 && !state.has_attribute("method")) return reset();
  const auto &saved = state.attribute("method"), &type = state.attribute("dtype");
  FQ_CHECK(saved == method_name(method_) && type.is_string(), kBiasCalibrator,
           "the state is of a {} calibrator, this one is '{}'", saved.dump(), method_name(method_));
  const bool mean = method_ == BiasMethod::mean;
  const char* first_name = mean ? "sums" : "largest";
  const Shape shape = state.at(first_name).shape();
  auto first = loaded(state, first_name, shape);
  auto second = mean ? std::vector<double>() : loaded(state, "smallest", shape);
  const std::int64_t count = state.at("count", {1}, DType::i64).data<std::int64_t>()[0];
  const DType dtype = dtype_from_name(type.get<std::string>());
  FQ_CHECK(count > 0 && !first.empty() && is_floating(dtype), kBiasCalibrator,
           "the state has {} elements a range: it is damaged", count);
  shape_ = shape;
  dtype_ = dtype;
  count_ = count;
  first_ = std::move(first);
  second_ = std::move(second);
}

}  // namespace fq
