#include "fakequant/layers/quantizer/observer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/detail/position_mask.h"

namespace fq {
namespace {

using nlohmann::json;

constexpr int kFewBits = 3;

/// Returns the options of a calibrator. For few codes `mse_search` has as many candidates, in finer steps up
/// to 1. It excludes the code that only negative numbers have, because ranges that use it shift the outputs
/// of a layer.
CalibratorOptions calibrator_options(const QuantDescriptor& d, const Axes& kept) {
  CalibratorOptions out{.axis = kept,
                        .num_bits = d.num_bits(),
                        .is_unsigned = d.is_unsigned(),
                        .narrow_range = d.narrow_range()};
  const bool few = d.num_bits().is_integer() && d.num_bits().bits() <= kFewBits;
  if (!few || d.calib_method() != "mse_search") return out;
  out.narrow_range = !d.is_unsigned();
  out.stop_multiplier = 1;
  out.multiplier_step = 0.02;
  return out;
}

/// Returns the options under the names of a descriptor's fields.
json to_json(const CalibratorOptions& o) {
  const NumBits bits = o.num_bits;
  return {{"axis", o.axis.values()},
          {"num_bits", bits.is_integer() ? json(bits.bits()) : json{bits.exponent(), bits.mantissa()}},
          {"unsigned", o.is_unsigned},
          {"narrow_range", o.narrow_range},
          {"stop_multiplier", o.stop_multiplier},
          {"multiplier_step", o.multiplier_step}};
}

// Files of older versions have no multipliers: the defaults apply.
CalibratorOptions from_json(const json& fields) {
  const json& bits = fields.at("num_bits");
  const CalibratorOptions usual;
  return {.axis = Axes(detail::whole_values<int>(fields.at("axis"))),
          .num_bits = bits.is_array() ? NumBits(detail::whole_value<int>(bits.at(0)),
                                                detail::whole_value<int>(bits.at(1)))
                                      : NumBits(detail::whole_value<int>(bits)),
          .is_unsigned = fields.at("unsigned").get<bool>(),
          .narrow_range = fields.at("narrow_range").get<bool>(),
          .stop_multiplier = fields.value("stop_multiplier", usual.stop_multiplier),
          .multiplier_step = fields.value("multiplier_step", usual.multiplier_step)};
}

// The sweep tries all E4M3 scales of a block, so it requires scales of that type.
void check_sweep(const QuantDescriptor& d, const std::string& name) {
  FQ_CHECK(d.calib_method() != "scale_sweep" ||
               (d.block_sizes().scale_bits == NumBits(4, 3) && !d.has_dynamic_blocks()),
           "quantizer",
           "calib_method scale_sweep of {}: it is for static blocks with scale_bits (4, 3), use mse_search",
           detail::quantizer_label(name));
}

}  // namespace

Calibrator& RangeObserver::calibrator() {
  if (!calibrator_) make_own(params_.descriptor.axis());
  return *calibrator_;
}

void RangeObserver::make_own(const Axes& axes) {
  check_sweep(params_.descriptor, params_.name);
  const CalibratorOptions options = calibrator_options(params_.descriptor, axes);
  calibrator_ = make_calibrator(params_.descriptor.calib_method(), options);
  own_options_ = options;
}

void RangeObserver::set_calibrator(std::unique_ptr<Calibrator> calibrator) {
  FQ_CHECK(calibrator != nullptr, "quantizer", "the calibrator for {} is null: make one",
           detail::quantizer_label(params_.name));
  calibrator_ = std::move(calibrator);
  // A user's calibrator has no known options; `load` puts the state into it directly.
  own_options_.reset();
}

void RangeObserver::observe(const Variable& x) { watcher_ ? watcher_(x) : collect(x.tensor()); }

void RangeObserver::collect(const Tensor& whole) {
  const Tensor x = detail::seen_by_ranges(whole, params_.descriptor);
  if (x.numel() == 0) return;
  const auto view = detail::BlockView::of(params_.descriptor, x.shape());
  const bool blocks = !params_.descriptor.block_sizes().empty(), own = !calibrator_ || own_options_;
  // Blocks: the kept axes depend on the shape of x, so the calibrator is made with the first batch.
  if (blocks && own && (!calibrator_ || calibrator_->empty())) make_own(view.kept());
  try {
    calibrator().collect(view.apply(x));
  } catch (const NumericError& error) {
    detail::rethrow_named(error, params_.name);
  }
}

std::optional<float> RangeObserver::minimum() const {
  return calibrator_ ? calibrator_->minimum() : std::nullopt;
}

CalibratedRange RangeObserver::range(AmaxOptions options) const {
  FQ_CHECK(calibrator_ && !calibrator_->empty(), "calibrate", "{} has seen no data: run at least one batch",
           detail::quantizer_label(params_.name));
  const QuantDescriptor& d = params_.descriptor;
  // Activations after a ReLU need no negative codes: an unsigned grid has half the step.
  const bool becomes_unsigned =
      params_.may_become_unsigned && d.format().is_integer() && *calibrator_->minimum() >= 0;
  options.num_bits = d.num_bits();
  options.is_unsigned = d.is_unsigned() || becomes_unsigned;
  // ModelOpt's calibration has no such limit.
  options.limits_clipping = params_.arithmetic == Arithmetic::deployed;
  const Tensor amax = calibrator_->compute_amax(options);
  const auto values = amax.to(DType::f32).to_vector<float>();
  const bool zeros = std::ranges::all_of(values, [](float v) { return v <= detail::least_amax; });
  return {amax, zeros ? d.is_unsigned() : options.is_unsigned};  // training may show negative values
}

void RangeObserver::save(StateDict& state, const std::string& prefix) const {
  const QuantDescriptor& d = params_.descriptor;
  // The data of another method could not be loaded again.
  if (!calibrator_ || calibrator_->empty() || calibrator_->method() != d.calib_method()) return;
  state.merge(calibrator_->state_dict(), prefix + "/calibrator");
  state.set_attribute(prefix + "/calibrator_options",
                      to_json(own_options_.value_or(calibrator_options(d, d.axis()))));
}

std::unique_ptr<Calibrator> RangeObserver::saved(const StateDict& state, const std::string& prefix,
                                                 CalibratorOptions& options) const {
  try {
    options = from_json(state.attribute(prefix + "/calibrator_options"));
    auto out = make_calibrator(params_.descriptor.calib_method(), options);
    out->load_state(state.sub(prefix + "/calibrator"));
    return out;
  } catch (const json::exception& error) {
    throw ArgumentError(fmt::format("[quantizer] the saved calibrator of {} is damaged: {}",
                                    detail::quantizer_label(params_.name), error.what()));
  } catch (const ArgumentError& error) {
    throw ArgumentError(
        fmt::format("{} (the saved calibrator of {})", error.what(), detail::quantizer_label(params_.name)));
  }
}

void RangeObserver::load(const StateDict& state, const std::string& prefix) {
  const bool own = !calibrator_ || own_options_;
  if (own)
    calibrator_.reset();
  else
    calibrator_->reset();
  if (!state.has_sub(prefix + "/calibrator")) return;
  if (!own) return calibrator_->load_state(state.sub(prefix + "/calibrator"));
  CalibratorOptions options;
  calibrator_ = saved(state, prefix, options);
  own_options_ = options;
}

void RangeObserver::merge(const StateDict& state, const std::string& prefix) {
  if (!state.has_sub(prefix + "/calibrator")) return;
  if (!calibrator_ || calibrator_->empty()) return load(state, prefix);
  CalibratorOptions options;
  // Read completely before the merge, so that damaged data changes nothing.
  const auto other = saved(state, prefix, options);
  try {
    calibrator_->merge(*other);
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{}, at {}", error.what(), detail::quantizer_label(params_.name)));
  }
}

}  // namespace fq
