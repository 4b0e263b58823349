#include "fakequant/layers/quantizer/tensor_quantizer.h"

#include <utility>

#include <fmt/ranges.h>

#include "fakequant/core/detail/rerun.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/trace.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/arithmetic.h"
#include "fakequant/layers/quantizer/detail/pre_quant_scale.h"
#include "fakequant/layers/quantizer/detail/settings_state.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"

namespace fq {
namespace {

QuantizerSettings settings_of(QuantDescriptor descriptor, Arithmetic arithmetic) {
  QuantizerSettings out;
  out.descriptor = std::move(descriptor);
  out.arithmetic = arithmetic;
  return out;
}

}  // namespace

TensorQuantizer::TensorQuantizer(QuantDescriptor descriptor, Arithmetic arithmetic)
    : TensorQuantizer(settings_of(std::move(descriptor), arithmetic)) {}

TensorQuantizer::TensorQuantizer(QuantizerSettings settings)
    : grid_(std::make_unique<detail::QuantizerGrid>(settings_, range_)),
      weight_codes_(std::make_unique<WeightCodes>(settings_, range_, *grid_)) {
  set_settings(std::move(settings));
}

TensorQuantizer::~TensorQuantizer() = default;

std::string TensorQuantizer::describe() const {
  if (!enabled()) return "disabled";
  const QuantDescriptor& d = descriptor();
  auto text = to_string(d.format());
  if (!d.axis().empty()) text += fmt::format(", axis {}", fmt::join(d.axis().values(), ", "));
  for (const auto& [axis, length] : d.block_sizes().lengths)
    text += fmt::format(", block[{}] {}", axis, length);
  if (d.has_dynamic_blocks() || d.dynamic()) text += ", dynamic";
  const Tensor range = amax();
  if (range.defined() && range.numel() == 1)
    text += fmt::format(", amax {:.6g}", range.item());
  else if (range.defined())
    text += fmt::format(", {} amax", range.numel());
  return text + (d.learn_amax() ? ", learned" : "") + (observing() ? ", observing" : "") +
         (quantizing() ? "" : ", not quantizing");
}

void TensorQuantizer::update(const std::function<void(QuantizerSettings&)>& change) {
  QuantizerSettings settings = settings_;
  change(settings);
  set_settings(std::move(settings));
}

void TensorQuantizer::set_name(std::string name) {
  settings_.name = std::move(name);
  forget();
}

void TensorQuantizer::set_descriptor(QuantDescriptor descriptor) {
  QuantizerSettings settings = settings_;
  settings.descriptor = std::move(descriptor);
  set_settings(std::move(settings));
}

void TensorQuantizer::set_settings(QuantizerSettings settings) {
  check(settings);
  settings.running = settings.running && settings.has_fixed_range();
  settings.pre_quant_scale = settings.pre_quant_scale.to(device_);
  const QuantizerSettings before = std::exchange(settings_, std::move(settings));
  arithmetic_ = detail::make_arithmetic(settings_, range_, *grid_);
  if (!(before.descriptor == descriptor())) {
    observer_.reset();
    range_.follow(before.descriptor);
  } else if (before.arithmetic != settings_.arithmetic && amax().defined()) {
    range_.keep(amax());
  }
  range_changed();
}

void TensorQuantizer::set_amax(const Tensor& amax) {
  range_.set(amax);
  range_changed();
}

void TensorQuantizer::set_scale(const Tensor& scale) {
  range_.set_scale(scale);
  range_changed();
}

void TensorQuantizer::load_calibrated_amax(const AmaxOptions& options) {
  set_calibrated_range(observer_.range(options));
}

void TensorQuantizer::set_calibrated_range(const CalibratedRange& range) {
  if (range.is_unsigned && settings_.may_become_unsigned && descriptor().format().is_integer()) {
    auto changed = descriptor().options();
    changed.is_unsigned = true;
    settings_.descriptor = QuantDescriptor(changed);
    settings_.zero_point = 0;
  }
  range_.keep(range.amax);
  range_changed();
}

void TensorQuantizer::range_changed() {
  remove_parameter("amax");
  if (range_.learned().defined()) add_parameter("amax", range_.learned());
  forget();
}

void TensorQuantizer::forget() {
  grid_->forget();
  weight_codes_->forget();
}

void TensorQuantizer::on_device_change(Device device) {
  device_ = device;
  settings_.pre_quant_scale = settings_.pre_quant_scale.to(device);
  range_.to(device);
  forget();
}

Variable TensorQuantizer::forward(const Variable& input) {
  if (input.numel() == 0) return input;
  const Tensor& factor = settings_.pre_quant_scale;
  const Variable x = factor.defined() ? detail::pre_quant_scaled(input, factor) : input;
  if (!enabled()) return x;
  const bool computes = !x.device().is_meta();
  const bool recorded = grad_enabled() || detail::rerun() != nullptr;
  if (observing() && computes && !detail::runs_again()) observer_.observe(x);
  if (settings_.running && training() && recorded && computes) return quantize_running(x);
  return quantizing() ? arithmetic_->quantize(x) : x;
}

Variable TensorQuantizer::quantize_running(const Variable& x) {
  detail::Rerun* block = detail::rerun();
  if (!detail::runs_again()) {
    range_.move_towards(x);
    forget();
    if (block != nullptr) block->keep(amax().clone());
    return quantizing() ? arithmetic_->quantize(x) : x;
  }
  Tensor then = block->next();
  if (!quantizing()) return x;
  const struct Restore {
    TensorQuantizer& q;
    Tensor now;
    ~Restore() {
      (void)q.range_.exchange(now);
      q.forget();
    }
  } restore{*this, range_.exchange(std::move(then))};
  forget();
  return arithmetic_->quantize(x);
}

QuantSpec TensorQuantizer::spec() const { return grid_->own(); }

Tensor TensorQuantizer::quantized_values(const Tensor& x) const { return arithmetic_->values(x); }

Variable TensorQuantizer::weight(const Variable& w) {
  if (holds_codes(w)) return packed_weight(w);
  return weight_codes_->keeps(w) ? weight_codes_->of(w) : (*this)(w);
}

Variable TensorQuantizer::packed_weight(const Variable& w) const {
  const PathScope path(
      std::string_view(name()).substr(name().rfind('.') + 1));  // as when it runs as a module
  const Variable codes = ops::attach_codes(w, weight_codes_->unpack(w.tensor()));
  return enabled() && quantizing() ? codes : codes.as_float();
}

void TensorQuantizer::save(StateDict& state, const std::string& prefix) const {
  detail::save_settings(settings_, state, prefix);
  if (amax().defined()) state.set(prefix + "/amax", amax().clone());
  if (range_.scale().defined()) state.set(prefix + "/scale", range_.scale().clone());
  observer_.save(state, prefix);
  weight_codes_->save(state, prefix);
}

void TensorQuantizer::load(const StateDict& state, const std::string& prefix) {
  set_settings(detail::load_settings(name(), state, prefix));
  observer_.reset();
  range_.load(state.contains(prefix + "/amax") ? state.at(prefix + "/amax") : Tensor{});
  if (state.contains(prefix + "/scale")) range_.set_scale(state.at(prefix + "/scale"));
  observer_.load(state, prefix);
  weight_codes_->load(state, prefix);
  range_changed();
}

}  // namespace fq
