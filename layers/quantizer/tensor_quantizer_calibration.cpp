#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/tape.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq {
namespace {

using nlohmann::json;

CalibratorOptions options_of(const QuantDescriptor& d, const Axes& kept) {
  return {.axis = kept,
          .num_bits = d.num_bits(),
          .is_unsigned = d.is_unsigned(),
          .narrow_range = d.narrow_range()};
}

/// Under the names of a descriptor's fields.
json to_json(const CalibratorOptions& o) {
  const NumBits bits = o.num_bits;
  return {{"axis", o.axis.values()},
          {"num_bits", bits.is_integer() ? json(bits.bits()) : json{bits.exponent(), bits.mantissa()}},
          {"unsigned", o.is_unsigned},
          {"narrow_range", o.narrow_range}};
}

CalibratorOptions from_json(const json& fields) {
  const json& bits = fields.at("num_bits");
  return {.axis = Axes(fields.at("axis").get<std::vector<int>>()),
          .num_bits = bits.is_array() ? NumBits(bits.at(0).get<int>(), bits.at(1).get<int>())
                                      : NumBits(bits.get<int>()),
          .is_unsigned = fields.at("unsigned").get<bool>(),
          .narrow_range = fields.at("narrow_range").get<bool>()};
}

void check_sweep(const QuantDescriptor& d, const std::string& name) {
  FQ_CHECK(d.calib_method() != "scale_sweep" ||
               (d.block_sizes().scale_bits == NumBits(4, 3) && !d.has_dynamic_blocks()),
           "quantizer",
           "calib_method scale_sweep of '{}': it is for static blocks with scale_bits (4, 3), use mse_search",
           name);
}

}  // namespace

Calibrator& TensorQuantizer::calibrator() {
  if (!calibrator_) make_own_calibrator(descriptor_.axis());
  return *calibrator_;
}

void TensorQuantizer::make_own_calibrator(const Axes& axes) {
  check_sweep(descriptor_, name_);
  const CalibratorOptions options = options_of(descriptor_, axes);
  calibrator_ = make_calibrator(descriptor_.calib_method(), options);
  calibrator_options_ = options;
}

void TensorQuantizer::set_calibrator(std::unique_ptr<Calibrator> calibrator) {
  FQ_CHECK(calibrator != nullptr, "quantizer", "the calibrator for '{}' is null: make one", name_);
  calibrator_ = std::move(calibrator);
  calibrator_options_.reset();
}

void TensorQuantizer::collect(const Tensor& x) {
  const auto view = detail::BlockView::of(descriptor_, x.shape());
  const bool blocks = !descriptor_.block_sizes().empty(), own = !calibrator_ || calibrator_options_;
  if (blocks && own && (!calibrator_ || calibrator_->empty())) make_own_calibrator(view.kept());
  try {
    calibrator().collect(view.apply(x));
  } catch (const NumericError& error) {
    detail::rethrow_named(error, name_);
  }
}

std::optional<float> TensorQuantizer::observed_minimum() const {
  return calibrator_ ? calibrator_->minimum() : std::nullopt;
}

CalibratedRange TensorQuantizer::calibrated_range(AmaxOptions options) const {
  FQ_CHECK(calibrator_ && !calibrator_->empty(), "calibrate", "'{}' has seen no data: run at least one batch",
           name_);
  const bool becomes_unsigned =
      may_become_unsigned_ && descriptor_.format().is_integer() && *calibrator_->minimum() >= 0;
  options.num_bits = descriptor_.num_bits();
  options.is_unsigned = descriptor_.is_unsigned() || becomes_unsigned;
  return {calibrator_->compute_amax(options), options.is_unsigned};
}

void TensorQuantizer::set_calibrated_range(const CalibratedRange& range) {
  if (range.is_unsigned && may_become_unsigned_ && descriptor_.format().is_integer()) {
    auto changed = descriptor_.options();
    changed.is_unsigned = true;
    descriptor_ = QuantDescriptor(changed);
    zero_point_ = 0;
  }
  keep_amax(range.amax);
  forget();
}

void TensorQuantizer::load_calibrated_amax(const AmaxOptions& options) {
  set_calibrated_range(calibrated_range(options));
}

Tensor TensorQuantizer::quantized_values(const Tensor& x) {
  const NoGrad no_grad;
  if (arithmetic_ == Arithmetic::reference) return quantize_reference(Variable(x)).tensor();
  const Variable values(x.to(DType::f32));
  return ops::quantize(values, spec_for(values), nullptr).tensor();
}

void TensorQuantizer::save_calibrator(StateDict& state, const std::string& prefix) const {
  if (!calibrator_ || calibrator_->empty() || calibrator_->method() != descriptor_.calib_method()) return;
  const auto options = calibrator_options_.value_or(options_of(descriptor_, descriptor_.axis()));
  state.merge(calibrator_->state_dict(), prefix + "/calibrator");
  state.set_attribute(prefix + "/calibrator_options", to_json(options));
}

std::unique_ptr<Calibrator> TensorQuantizer::saved_calibrator(const StateDict& state,
                                                              const std::string& prefix,
                                                              CalibratorOptions& options) const {
  try {
    options = from_json(state.attribute(prefix + "/calibrator_options"));
    auto out = make_calibrator(descriptor_.calib_method(), options);
    out->load_state(state.sub(prefix + "/calibrator"));
    return out;
  } catch (const json::exception& error) {
    throw ArgumentError(
        fmt::format("[quantizer] the saved calibrator of '{}' is damaged: {}", name_, error.what()));
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{} (the saved calibrator of '{}')", error.what(), name_));
  }
}

void TensorQuantizer::load_calibrator(const StateDict& state, const std::string& prefix) {
  const bool own = !calibrator_ || calibrator_options_;
  if (own)
    calibrator_.reset();
  else
    calibrator_->reset();
  if (!state.has_sub(prefix + "/calibrator")) return;
  if (!own) return calibrator_->load_state(state.sub(prefix + "/calibrator"));
  CalibratorOptions options;
  calibrator_ = saved_calibrator(state, prefix, options);
  calibrator_options_ = options;
}

void TensorQuantizer::merge_calibrator(const StateDict& state, const std::string& prefix) {
  if (!state.has_sub(prefix + "/calibrator")) return;
  if (!calibrator_ || calibrator_->empty()) return load_calibrator(state, prefix);
  CalibratorOptions options;
  const auto other = saved_calibrator(state, prefix, options);
  try {
    calibrator_->merge(*other);
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{}, at '{}'", error.what(), name_));
  }
}

}  // namespace fq
