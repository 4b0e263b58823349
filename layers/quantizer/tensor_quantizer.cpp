#include "fakequant/layers/quantizer/tensor_quantizer.h"

#include <utility>

#include <fmt/ranges.h>

#include "fakequant/core/detail/rerun.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/trace.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/arithmetic.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"

namespace fq {
namespace {

QuantParams make_params(QuantDescriptor descriptor, Arithmetic arithmetic) {
  QuantParams out;
  out.descriptor = std::move(descriptor);
  out.arithmetic = arithmetic;
  return out;
}

}  // namespace

TensorQuantizer::TensorQuantizer(QuantDescriptor descriptor, Arithmetic arithmetic)
    : TensorQuantizer(make_params(std::move(descriptor), arithmetic)) {}

TensorQuantizer::TensorQuantizer(QuantParams params)
    : grid_(std::make_unique<detail::GridCache>(params_, range_)),
      weight_codes_(std::make_unique<WeightCodes>(params_, range_, *grid_)) {
  set_params(std::move(params));
}

TensorQuantizer::~TensorQuantizer() = default;

std::string TensorQuantizer::describe() const {
  if (!params_.enabled) return "disabled";
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
  if (range_.is_zero()) text += ", saw only zeros: passes floats";
  return text + (d.learn_amax() ? ", learned" : "") + (observing() ? ", observing" : "") +
         (quantizing() ? "" : ", not quantizing");
}

void TensorQuantizer::update(const std::function<void(QuantParams&)>& change) {
  QuantParams params = params_;
  change(params);
  set_params(std::move(params));
}

void TensorQuantizer::set_name(std::string name) {
  params_.name = std::move(name);
  forget();
}

void TensorQuantizer::set_descriptor(QuantDescriptor descriptor) {
  QuantParams params = params_;
  params.descriptor = std::move(descriptor);
  set_params(std::move(params));
}

void TensorQuantizer::set_params(QuantParams params) {
  // First, so that a rejected value changes nothing.
  check(params);
  // Ranges that come from each input, or are learned, have nothing to move.
  params.running = params.running && params.has_fixed_range();
  params.pre_quant_scale = params.pre_quant_scale.to(device_);
  const QuantParams before = std::exchange(params_, std::move(params));
  arithmetic_ = detail::make_arithmetic(params_, range_, *grid_, *weight_codes_);
  // Collected data belongs to the old format and axes. The range decides itself whether it still fits.
  if (!(before.descriptor == descriptor())) {
    observer_.reset();
    range_.follow(before.descriptor);
  } else if (before.arithmetic != params_.arithmetic && amax().defined()) {
    range_.keep(amax());  // the two arithmetics store ranges in different shapes
  }
  // Extreme codes determine the steps of one scheme only.
  if (before.weight_scheme != params_.weight_scheme) weight_codes_->set_extreme_codes({});
  range_changed();
}

void TensorQuantizer::set_amax(const Tensor& amax) {
  range_.set(amax);
  range_changed();
}

void TensorQuantizer::raise_amax(const Tensor& amax) {
  range_.raise(amax);
  range_changed();
}

void TensorQuantizer::set_growth(const RangeGrowth& growth) {
  range_.set_growth(growth);
  forget();
}

void TensorQuantizer::set_scale(const Tensor& scale) {
  range_.set_scale(scale);
  range_changed();
}

void TensorQuantizer::load_calibrated_amax(const AmaxOptions& options) {
  set_calibrated_range(observer_.range(options));
}

void TensorQuantizer::set_calibrated_range(const CalibratedRange& range) {
  // Before the range is kept: a scale is amax / bound, and unsigned codes have another bound.
  if (range.is_unsigned && params_.may_become_unsigned && descriptor().format().is_integer()) {
    auto changed = descriptor().options();
    changed.is_unsigned = true;
    params_.descriptor = QuantDescriptor(changed);
    params_.zero_point = 0;
  }
  range_.keep(range.amax);
  range_changed();
}

void TensorQuantizer::range_changed() {
  // The learned range may be a new Variable or none, so it is registered again.
  remove_parameter("amax");
  if (range_.learned().defined()) add_parameter("amax", range_.learned());
  forget();
}

void TensorQuantizer::forget() {
  grid_->forget();
  weight_codes_->forget();
}

void TensorQuantizer::handle_device_change(Device device) {
  device_ = device;
  params_.pre_quant_scale = params_.pre_quant_scale.to(device);
  range_.to(device);
  weight_codes_->to(device);
  forget();
}

Variable TensorQuantizer::forward(const Variable& input) {
  if (input.numel() == 0) return input;
  const Tensor& factor = params_.pre_quant_scale;
  const Variable x = factor.defined() ? detail::pre_quant_scaled(input, factor) : input;
  // A disabled quantizer still applies pre_quant_scale, because the weights contain its inverse (SmoothQuant,
  // AWQ).
  if (!params_.enabled) return x;
  const bool computes = !x.device().is_meta();
  // The second run of a checkpointed block has the same values, which count once.
  if (observing() && computes && !detail::runs_again()) observer_.observe(x);
  if (computes && moves_range()) return quantize_moving(x);
  // enabled() reads the range: it is false while the range is zero.
  return quantizing() && enabled() ? arithmetic_->quantize(x, context().quantizes_weight) : x;
}

bool TensorQuantizer::moves_range() const {
  // The first run of a checkpointed block does not record, but is part of a training step.
  const bool recorded = grad_enabled() || detail::rerun() != nullptr;
  return training() && recorded && (params_.running || range_.grows());
}

/// Uses the ranges of the first run when a checkpointed block runs again. A learned range is the same in both
/// runs.
Variable TensorQuantizer::quantize_moving(const Variable& x) {
  detail::Rerun* block = detail::rerun();
  const bool replayed = block != nullptr && !range_.learned().defined();
  if (!detail::runs_again()) {
    params_.running ? range_.move_towards(x) : range_.grow(x);
    forget();
    if (replayed) block->keep(range_.is_zero() ? Tensor() : amax().clone());
  }
  const bool again = detail::runs_again() && replayed;
  Tensor then = again ? block->next() : Tensor();
  if (!quantizing() || !enabled() || (again && !then.defined())) return x;
  // The range may have moved since the first run. The exchange is undone also if quantize throws.
  if (!again) return arithmetic_->quantize(x, context().quantizes_weight);
  const struct Restore {
    TensorQuantizer& q;
    Tensor now;
    ~Restore() {
      (void)q.range_.exchange(now);
      q.forget();
    }
  } restore{*this, range_.exchange(std::move(then))};
  forget();
  return arithmetic_->quantize(x, context().quantizes_weight);
}

Grid TensorQuantizer::grid() const { return grid_->fixed_grid(); }

// A zero range passes floats, like forward.
Tensor TensorQuantizer::quantized_values(const Tensor& x) const {
  return range_.is_zero() ? x.to(DType::f32) : arithmetic_->values(x);
}

// Cached codes would miss the growth of the range, so a growing range takes the path of forward.
bool TensorQuantizer::keeps_weight(const Variable& w) const {
  return weight_codes_->keeps(w) && !(range_.grows() && moves_range());
}

Variable TensorQuantizer::weight(const Variable& w) {
  if (holds_codes(w)) return packed_weight(w);
  if (keeps_weight(w)) return weight_codes_->of(w);
  const ScopedValue weight_scope(context().quantizes_weight, true);
  return (*this)(w);
}

Variable TensorQuantizer::packed_weight(const Variable& w) const {
  const PathScope path(
      std::string_view(name()).substr(name().rfind('.') + 1));  // as when it runs as a module
  const Variable codes = ops::attach_codes(w, weight_codes_->unpack(w.tensor()));
  return enabled() && quantizing() ? codes : codes.as_float();
}

void TensorQuantizer::save(StateDict& state, const std::string& prefix) const {
  detail::save_params(params_, state, prefix);
  if (amax().defined()) state.set(prefix + "/amax", amax().clone());
  if (range_.grows()) state.set(prefix + "/growing", range_.growing().clone());
  if (range_.scale().defined()) state.set(prefix + "/scale", range_.scale().clone());
  observer_.save(state, prefix);
  weight_codes_->save(state, prefix);
}

void TensorQuantizer::load(const StateDict& state, const std::string& prefix) {
  set_params(detail::load_params(name(), state, prefix));
  observer_.reset();
  const auto saved = [&](const char* name) {
    return state.contains(prefix + name) ? state.at(prefix + name) : Tensor();
  };
  // After set_params, which fits the range to the descriptor; the steps after amax, which clears them.
  range_.load(saved("/amax"), saved("/growing"));
  if (state.contains(prefix + "/scale")) range_.set_scale(state.at(prefix + "/scale"));
  observer_.load(state, prefix);
  weight_codes_->load(state, prefix);
  weight_codes_->to(device_);
  range_changed();
}

}  // namespace fq
