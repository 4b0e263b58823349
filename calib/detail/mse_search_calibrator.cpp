#include "fakequant/calib/detail/mse_search_calibrator.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/numerics/detail/range_formulas.h"

namespace fq {
namespace {

constexpr const char* kMseSearchCalibrator = "mse_search_calibrator";

std::vector<float> candidate_multiples(const CalibratorOptions& o) {
  const double start = o.start_multiplier, stop = o.stop_multiplier;
  FQ_CHECK(start > 0 && start <= stop && stop <= 1e6, kMseSearchCalibrator,
           "multipliers are {} .. {}: use 0 < start <= stop, up to 1e6", start, stop);
  // ModelOpt's number of multiples: ceil((stop - start) / step) + 1.
  const double steps = std::ceil((stop - start) / o.multiplier_step) + 1;
  FQ_CHECK(o.multiplier_step > 0 && steps <= MseSearchCalibrator::most_multiples, kMseSearchCalibrator,
           "a step of {} makes {} multiples: use a positive one that makes at most {}", o.multiplier_step,
           steps, +MseSearchCalibrator::most_multiples);
  if (steps < 2) return {static_cast<float>(start)};
  return detail::linspace(static_cast<float>(start), static_cast<float>(stop), static_cast<int>(steps));
}

Format unsigned_form(const Format& format) { return IntFormat{format.integer().bits, true, false}; }

void add_errors(const detail::RangeRows& rows, const Tensor& amax, const std::vector<float>& multiples,
                const Format& format, std::vector<double>& errors) {
  const auto width = static_cast<std::int64_t>(multiples.size());
  errors.resize(static_cast<std::size_t>(rows.count() * width));
  detail::run(rows.values.device(), &detail::Kernels::add_errors, rows, amax, multiples, format, errors);
}

std::vector<double> loaded_errors(const StateDict& state, const std::string& name, std::int64_t ranges,
                                  std::size_t multiples) {
  auto out = state.at(name, {ranges, static_cast<std::int64_t>(multiples)}, DType::f64).to_vector<double>();
  FQ_CHECK(std::ranges::all_of(out, [](double v) { return v >= 0; }), kMseSearchCalibrator,
           "the state is damaged: an error is negative or NaN");
  return out;
}

}  // namespace

std::unique_ptr<Calibrator> detail::make_mse_search(const CalibratorOptions& options) {
  return std::make_unique<MseSearchCalibrator>(options);
}

MseSearchCalibrator::MseSearchCalibrator(const CalibratorOptions& options)
    : axis_(options.axis),
      format_(detail::search_format(options, kMseSearchCalibrator)),
      multiples_(candidate_multiples(options)) {}

void MseSearchCalibrator::do_collect(const Tensor& x, float) {
  const Tensor batch = detail::amax(x, axis_, kMseSearchCalibrator).to(Device::cpu());
  FQ_CHECK(!first_.defined() || batch.shape() == first_.shape(), kMseSearchCalibrator,
           "this batch has ranges of shape {}, earlier ones {}: use batches of one shape, or call reset()",
           to_string(batch.shape()), to_string(first_.shape()));
  const auto rows = detail::range_rows(x, axis_, kMseSearchCalibrator);
  // The sign of the quantizer is chosen after calibration. Unsigned errors are valid only if no batch had a
  // value below 0.
  const bool both = format_.is_integer() && !format_.integer().is_unsigned && detail::range(x).minimum >= 0 &&
                    (!first_.defined() || !unsigned_errors_.empty());
  if (!first_.defined()) first_ = Tensor::zeros(batch.shape());
  auto* first = first_.mutable_data<float>();
  for (std::int64_t r = 0; r < batch.numel(); ++r)
    // Candidates are multiples of the first range above 0. A channel of zeros waits for its first value.
    if (first[r] == 0) first[r] = batch.data<float>()[r];
  // Errors of all candidates are sums over the batches, in f64: no batch is stored.
  add_errors(rows, first_, multiples_, format_, errors_);
  if (both)
    add_errors(rows, first_, multiples_, unsigned_form(format_), unsigned_errors_);
  else
    unsigned_errors_.clear();
}

Tensor MseSearchCalibrator::do_compute(const AmaxOptions& options) const {
  const bool other = options.is_unsigned && format_.is_integer() && !format_.integer().is_unsigned;
  FQ_CHECK(!other || !unsigned_errors_.empty(), kMseSearchCalibrator,
           "an unsigned range was requested, but a value was below 0: use a signed range");
  const auto& errors = other ? unsigned_errors_ : errors_;
  Tensor out = first_.clone();
  auto* amax = out.mutable_data<float>();
  const std::size_t width = multiples_.size();
  for (std::size_t r = 0; r < static_cast<std::size_t>(out.numel()); ++r) {
    const std::span of(errors.data() + r * width, width);
    const auto best = std::ranges::min_element(of);
    // If every candidate overflows, the largest |x| is the range.
    if (std::isfinite(*best))
      amax[r] = detail::amax_multiple(amax[r], multiples_[static_cast<std::size_t>(best - of.begin())]);
  }
  return out;
}

void MseSearchCalibrator::do_reset() {
  first_ = {};
  errors_.clear();
  unsigned_errors_.clear();
}

void MseSearchCalibrator::do_save(StateDict& state) const {
  const Shape shape{first_.numel(), static_cast<std::int64_t>(multiples_.size())};
  state.set("first", first_.clone());
  state.set("errors", Tensor::from(errors_, shape));
  if (!unsigned_errors_.empty()) state.set("unsigned_errors", Tensor::from(unsigned_errors_, shape));
  state.set("multiples", Tensor::from(multiples_, {shape[1]}));
  state.set_attribute("format", to_string(format_));
}

void MseSearchCalibrator::do_load(const StateDict& state) {
  const auto& format = state.attribute("format");
  FQ_CHECK(format.is_string() && format.get<std::string>() == to_string(format_), kMseSearchCalibrator,
           "the state is of a search for {}, this one is for {}", format.dump(), to_string(format_));
  FQ_CHECK(
      // Errors of other candidates cannot be added up.
      state.at("multiples").dtype() == DType::f32 && state.at("multiples").to_vector<float>() == multiples_,
      kMseSearchCalibrator, "the state is of a search among other multiples: use its start, stop and step");
  Tensor first = detail::loaded_amax(state.at("first"), kMseSearchCalibrator);
  auto errors = loaded_errors(state, "errors", first.numel(), multiples_.size());
  std::vector<double> unsigned_errors;
  if (state.contains("unsigned_errors"))
    unsigned_errors = loaded_errors(state, "unsigned_errors", first.numel(), multiples_.size());
  first_ = std::move(first);
  errors_ = std::move(errors);
  unsigned_errors_ = std::move(unsigned_errors);
}

}  // namespace fq
