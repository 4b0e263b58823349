#include "fakequant/calib/detail/lsq_calibrator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/format.h"
#include "fakequant/core/io/state_dict.h"

namespace fq {
namespace {

constexpr const char* kLsqCalibrator = "lsq_calibrator";

}  // namespace

std::unique_ptr<Calibrator> detail::make_lsq(const CalibratorOptions& options) {
  return std::make_unique<LsqCalibrator>(options.axis, options.skip_zeros);
}

void LsqCalibrator::do_collect(const Tensor& x, float) {
  const auto rows = detail::range_rows(x, axis_, kLsqCalibrator);
  // Sum and count of each range, next to each other. Counts are exact in f64 up to 2^53.
  std::vector<double> batch(static_cast<std::size_t>(2 * rows.count()));
  detail::run(x.device(), &detail::Kernels::add_magnitudes, rows, skip_zeros_, batch);
  std::vector<double> sums;
  std::vector<std::int64_t> counts;
  for (std::size_t r = 0; r < batch.size(); r += 2) {
    sums.push_back(batch[r]);
    counts.push_back(static_cast<std::int64_t>(batch[r + 1]));
  }
  add(rows.shape, sums, counts);
}

void LsqCalibrator::add(const Shape& shape, const std::vector<double>& sums,
                        const std::vector<std::int64_t>& counts) {
  FQ_CHECK(sums_.empty() || shape == shape_, kLsqCalibrator,
           "this batch has ranges of shape {}, earlier ones {}: use batches of one shape, or call reset()",
           to_string(shape), to_string(shape_));
  shape_ = shape;
  sums_.resize(sums.size());
  counts_.resize(sums.size());
  for (std::size_t r = 0; r < sums.size(); ++r) {
    sums_[r] += sums[r];
    counts_[r] += counts[r];
  }
}

// f64 sums depend on the order of the batches in their last bits, so merged results are equal only up to
// rounding.
void LsqCalibrator::do_merge(const Calibrator& other) {
  const auto* from = dynamic_cast<const LsqCalibrator*>(&other);
  FQ_CHECK(from != nullptr && from->axis_ == axis_ && from->skip_zeros_ == skip_zeros_, "merge",
           "the calibrators keep different axes or zeros: calibrate both with one descriptor");
  if (!other.empty()) add(from->shape_, from->sums_, from->counts_);
}

Tensor LsqCalibrator::do_compute(const AmaxOptions& options) const {
  FQ_CHECK(options.num_bits.is_integer(), kLsqCalibrator,
           "{} is a float format: use max, percentile or mse_search", to_string(options.num_bits));
  const Format format = IntFormat{options.num_bits.bits(), options.is_unsigned};
  const auto bound = static_cast<double>(format.bound());
  Tensor out = Tensor::empty(shape_);
  auto* amax = out.mutable_data<float>();
  for (std::size_t r = 0; r < sums_.size(); ++r) {
    // LSQ (Esser et al., arXiv:1902.08153) starts with the step s = 2 mean|x| / sqrt(bound), so amax = s *
    // bound.
    const double mean = counts_[r] == 0 ? 0 : sums_[r] / static_cast<double>(counts_[r]);
    const double largest = static_cast<double>(std::numeric_limits<float>::max());
    amax[r] = static_cast<float>(std::min(2 * mean / std::sqrt(bound) * bound, largest));
  }
  return out;
}

void LsqCalibrator::do_reset() {
  sums_.clear();
  counts_.clear();
}

void LsqCalibrator::do_save(StateDict& state) const {
  state.set("sums", Tensor::from(sums_, shape_));
  state.set("counts", Tensor::from(counts_, shape_));
}

void LsqCalibrator::do_load(const StateDict& state) {
  const Shape shape = state.at("sums").shape();
  auto sums = state.at("sums", shape, DType::f64).to_vector<double>();
  auto counts = state.at("counts", shape, DType::i64).to_vector<std::int64_t>();
  const bool good = std::ranges::all_of(sums, [](double v) { return v >= 0 && std::isfinite(v); }) &&
                    std::ranges::all_of(counts, [](std::int64_t v) { return v >= 0; }) && !sums.empty();
  FQ_CHECK(good, kLsqCalibrator, "the state is damaged: sums and counts must be finite and not negative");
  shape_ = shape;
  sums_ = std::move(sums);
  counts_ = std::move(counts);
}

}  // namespace fq
