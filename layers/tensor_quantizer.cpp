#include "fakequant/layers/tensor_quantizer.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/calib/max_calibrator.h"
#include "fakequant/core/check.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/reference/modelopt.h"
#include "fakequant/core/tape.h"

namespace fq {
namespace {

/// amax as quantizers keep it: rank 0 for one scale, else a list.
Tensor flat(const Tensor& amax) {
  const Tensor values = amax.to(DType::f32);
  return values.numel() == 1 ? values.clone().reshape({}) : values.clone().reshape({-1});
}

Tensor amax_of(const Tensor& x, const QuantDescriptor& descriptor, const std::string& name) try {
  MaxCalibrator calibrator(descriptor.axis());
  calibrator.collect(x);
  return flat(calibrator.compute_amax());
} catch (const NumericError& error) {
  throw NumericError(fmt::format("{}, at '{}'", error.what(), name));
}

}  // namespace

TensorQuantizer::TensorQuantizer(QuantDescriptor descriptor, Arithmetic arithmetic)
    : arithmetic_(arithmetic) {
  set_descriptor(std::move(descriptor));
}

std::string TensorQuantizer::describe() const {
  if (!enabled_) return "disabled";
  auto text = to_string(descriptor_.format());
  if (!descriptor_.axis().empty())
    text += fmt::format(", axis {}", fmt::join(descriptor_.axis().values(), ", "));
  if (amax_.defined() && amax_.numel() == 1)
    text += fmt::format(", amax {:.6g}", amax_.item());
  else if (amax_.defined())
    text += fmt::format(", {} amax", amax_.numel());
  return text + (observing_ ? ", observing" : "") + (quantizing_ ? "" : ", not quantizing");
}

void TensorQuantizer::set_name(std::string name) {
  name_ = std::move(name);
  forget();
}

void TensorQuantizer::set_descriptor(QuantDescriptor descriptor) {
  FQ_CHECK(
      descriptor.block_sizes().empty(), "quantizer",
      "block_sizes of '{}': block quantization is not available in this version, use per-tensor or per-axis",
      name_);
  FQ_CHECK(
      !descriptor.learn_amax(), "quantizer",
      "learn_amax of '{}': learned ranges are not available in this version, use calibrated or running ones",
      name_);
  const bool same_axes = descriptor.axis() == descriptor_.axis();
  descriptor_ = std::move(descriptor);
  if (descriptor_.amax().defined())
    amax_ = flat(descriptor_.amax().tensor());
  else if (!same_axes)
    amax_ = {};
  calibrator_.reset();
  forget();
}

void TensorQuantizer::set_arithmetic(Arithmetic arithmetic) {
  arithmetic_ = arithmetic;
  forget();
}

void TensorQuantizer::set_running(bool on, double momentum) {
  FQ_CHECK(momentum > 0 && momentum <= 1, "quantizer", "a momentum of {} for '{}': use 0 < momentum <= 1",
           momentum, name_);
  running_ = on && !descriptor_.dynamic();
  momentum_ = momentum;
}

void TensorQuantizer::set_amax(const Tensor& amax) {
  FQ_CHECK(amax.numel() > 0, "quantizer", "amax of '{}' is empty: give one value, or one per channel", name_);
  FQ_CHECK(amax.numel() == 1 || !descriptor_.axis().empty(), "quantizer",
           "amax of '{}' has {} elements, a per-tensor quantizer takes one", name_, amax.numel());
  FQ_CHECK(!amax_.defined() || amax_.numel() == 1 || amax.numel() == amax_.numel(), "quantizer",
           "amax of '{}' has {} elements, it had {}: give one amax per channel", name_, amax.numel(),
           amax_.numel());
  const Tensor values = flat(amax);
  for (std::int64_t i = 0; i < values.numel(); ++i)
    FQ_CHECK(values.data<float>()[i] >= 0 && std::isfinite(values.data<float>()[i]), "quantizer",
             "amax of '{}' is {}: it must be finite and not negative", name_, values.data<float>()[i]);
  amax_ = values;
  forget();
}

Calibrator& TensorQuantizer::calibrator() {
  if (!calibrator_) calibrator_ = make_calibrator(descriptor_.calib_method(), {.axis = descriptor_.axis()});
  return *calibrator_;
}

std::optional<float> TensorQuantizer::observed_minimum() const {
  return calibrator_ ? calibrator_->minimum() : std::nullopt;
}

void TensorQuantizer::load_calibrated_amax(const AmaxOptions& options) {
  FQ_CHECK(calibrator_ && !calibrator_->empty(), "calibrate", "'{}' has seen no data: run at least one batch",
           name_);
  if (may_become_unsigned_ && descriptor_.format().is_integer() && *calibrator_->minimum() >= 0) {
    auto changed = descriptor_.options();
    changed.is_unsigned = true;
    descriptor_ = QuantDescriptor(changed);
    zero_point_ = 0;
  }
  AmaxOptions chosen = options;
  chosen.num_bits = descriptor_.num_bits();
  chosen.is_unsigned = descriptor_.is_unsigned();
  amax_ = flat(calibrator_->compute_amax(chosen));
  forget();
}

void TensorQuantizer::set_storage(int zero_point, bool pow2) {
  zero_point_ = zero_point;
  pow2_ = pow2;
  forget();
}

void TensorQuantizer::set_pre_quant_scale(Tensor scale) {
  pre_quant_scale_ = std::move(scale);
  forget();
}

void TensorQuantizer::forget() {
  const std::scoped_lock lock(mutex_);
  spec_.reset();
  weight_codes_ = {};
}

QuantSpec TensorQuantizer::spec_of(const Tensor& amax) const {
  Tensor used = amax;
  if (const auto factor = descriptor_.scale_amax()) {
    used = amax.clone();
    auto* values = used.mutable_data<float>();
    for (std::int64_t i = 0; i < used.numel(); ++i) values[i] *= static_cast<float>(*factor);
  }
  const auto& axes = descriptor_.axis();
  const auto granularity =
      axes.empty() || amax.numel() == 1 ? Granularity::per_tensor() : Granularity::per_axis(axes.values());
  return QuantSpec::from_amax(descriptor_.format(), granularity, used, name_, pow2_, zero_point_);
}

QuantSpec TensorQuantizer::spec() const {
  FQ_CHECK(amax_.defined(), "quantizer",
           "'{}' has no amax: calibrate it, set amax, or make its descriptor dynamic", name_);
  const std::scoped_lock lock(mutex_);
  if (!spec_) spec_ = spec_of(amax_);
  return *spec_;
}

QuantSpec TensorQuantizer::spec_for(const Variable& x) const {
  (void)descriptor_.granularity(x.rank());  // refuses axes that x does not have
  if (x.device().is_meta() && !amax_.defined()) return spec_of(Tensor::scalar(1.0));
  return descriptor_.dynamic() ? spec_of(amax_of(x.tensor(), descriptor_, name_)) : spec();
}

void TensorQuantizer::observe(const Variable& x) {
  try {
    calibrator().collect(x.tensor());
  } catch (const NumericError& error) {
    throw NumericError(fmt::format("{}, at '{}'", error.what(), name_));
  }
}

void TensorQuantizer::move_amax(const Variable& x) {
  const Tensor batch = amax_of(x.tensor(), descriptor_, name_);
  if (!amax_.defined()) return set_amax(batch);
  Tensor moved = amax_.clone();
  auto* values = moved.mutable_data<float>();
  for (std::int64_t i = 0; i < moved.numel(); ++i)
    values[i] += static_cast<float>(momentum_) * (batch.data<float>()[i] - values[i]);
  set_amax(moved);
}

Variable TensorQuantizer::forward(const Variable& input) {
  if (!enabled_) return input;
  const Variable x = pre_quant_scale_.defined() ? ops::multiply(input, Variable(pre_quant_scale_)) : input;
  const bool computes = !x.device().is_meta();
  if (observing_ && computes) observe(x);
  if (running_ && training() && grad_enabled() && computes) move_amax(x);
  return quantizing_ ? quantize(x) : x;
}

Variable TensorQuantizer::quantize(const Variable& x) {
  if (arithmetic_ == Arithmetic::reference) return quantize_reference(x);
  Variable codes = ops::quantize(x, spec_for(x));
  return descriptor_.fake_quant() ? codes : Variable(codes.quantized()->codes);
}

Variable TensorQuantizer::quantize_reference(const Variable& x) const {
  const QuantSpec grid = spec_for(x);
  Shape shape(static_cast<std::size_t>(x.rank()), 1);
  if (const int axis = grid.granularity.single_axis(x.rank()); axis >= 0)
    shape[static_cast<std::size_t>(axis)] = grid.amax.numel();
  const Amax amax = grid.amax.numel() == 1 ? Amax(grid.amax) : Amax(grid.amax.reshape(shape));
  const Variable values = x.as_float();
  constexpr bool pass_through_bwd = true;  // ModelOpt's default
  if (!grid.format.is_integer()) return scaled_e4m3(values, amax, {}, 4, 3, pass_through_bwd);
  const IntFormat& format = grid.format.integer();
  return fake_tensor_quant(values, amax, {}, format.bits, format.is_unsigned, format.narrow_range,
                           pass_through_bwd);
}

Variable TensorQuantizer::weight(const Variable& w) {
  if (!enabled_ || !quantizing_ || observing_ || arithmetic_ == Arithmetic::reference ||
      descriptor_.dynamic() || pre_quant_scale_.defined() || !w.is_leaf() || w.device().is_meta() ||
      !descriptor_.fake_quant())
    return (*this)(w);
  const QuantSpec grid = spec();
  const std::uint64_t version = w.tensor().version();
  const bool with_mask = detail::needs_grad({w});
  const std::scoped_lock lock(mutex_);
  auto& [node, known_version, codes] = weight_codes_;
  if (node != w.node().get() || known_version != version || !codes || (with_mask && !codes->mask.defined()))
    weight_codes_ = {w.node().get(), version, fq::quantize(w.tensor(), grid, with_mask)};
  return ops::attach_codes(w, *codes);
}

}  // namespace fq
