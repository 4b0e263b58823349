#include "fakequant/layers/quantizer/tensor_quantizer.h"

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/tape.h"
#include "fakequant/layers/modules/detail/rerun.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/pre_quant_scale.h"

namespace fq {

TensorQuantizer::TensorQuantizer(QuantDescriptor descriptor, Arithmetic arithmetic)
    : arithmetic_(arithmetic) {
  set_descriptor(std::move(descriptor));
}

std::string TensorQuantizer::describe() const {
  if (!enabled_) return "disabled";
  auto text = to_string(descriptor_.format());
  if (!descriptor_.axis().empty())
    text += fmt::format(", axis {}", fmt::join(descriptor_.axis().values(), ", "));
  for (const auto& [axis, length] : descriptor_.block_sizes().lengths)
    text += fmt::format(", block[{}] {}", axis, length);
  if (descriptor_.has_dynamic_blocks() || descriptor_.dynamic()) text += ", dynamic";
  const Tensor range = amax();
  if (range.defined() && range.numel() == 1)
    text += fmt::format(", amax {:.6g}", range.item());
  else if (range.defined())
    text += fmt::format(", {} amax", range.numel());
  return text + (descriptor_.learn_amax() ? ", learned" : "") + (observing_ ? ", observing" : "") +
         (quantizing_ ? "" : ", not quantizing");
}

void TensorQuantizer::set_name(std::string name) {
  name_ = std::move(name);
  forget();
}

void TensorQuantizer::set_descriptor(QuantDescriptor descriptor) {
  FQ_CHECK(descriptor.block_sizes().scale_bits != NumBits(8), "quantizer",
           "scale_bits 8 of '{}': only packed tensors keep scales so, use (4, 3) or (8, 0), or leave it out",
           name_);
  const QuantDescriptor before = std::exchange(descriptor_, std::move(descriptor));
  try {
    check_learning();
  } catch (...) {
    descriptor_ = before;
    throw;
  }
  const Tensor known = amax();
  const bool same = before.axis() == descriptor_.axis() && before.block_sizes() == descriptor_.block_sizes();
  if (descriptor_.amax().defined())
    keep_amax(descriptor_.amax().tensor());
  else if (!same)
    drop_amax();
  else if (known.defined())
    keep_amax(known);
  running_ = running_ && follows_inputs();
  calibrator_.reset();
  forget();
}

void TensorQuantizer::set_arithmetic(Arithmetic arithmetic) {
  const Arithmetic before = std::exchange(arithmetic_, arithmetic);
  try {
    check_learning();
  } catch (...) {
    arithmetic_ = before;
    throw;
  }
  if (const Tensor known = amax(); known.defined()) keep_amax(known);
  forget();
}

void TensorQuantizer::set_running(bool on, double momentum) {
  FQ_CHECK(momentum > 0 && momentum <= 1, "quantizer", "a momentum of {} for '{}': use 0 < momentum <= 1",
           momentum, name_);
  running_ = on && follows_inputs();
  momentum_ = momentum;
}

void TensorQuantizer::set_storage(int zero_point, bool pow2) {
  zero_point_ = zero_point;
  pow2_ = pow2;
  forget();
}

void TensorQuantizer::set_pre_quant_scale(Tensor scale) {
  pre_quant_scale_ = scale.to(device_);
  forget();
}

bool TensorQuantizer::pass_through_bwd() const noexcept {
  return pass_through_bwd_.value_or(arithmetic_ == Arithmetic::reference);
}

void TensorQuantizer::set_pass_through_bwd(std::optional<bool> on) {
  pass_through_bwd_ = on;
  forget();
}

void TensorQuantizer::on_device_change(Device device) {
  device_ = device;
  if (pre_quant_scale_.defined()) pre_quant_scale_ = pre_quant_scale_.to(device);
  if (amax_.device().is_cuda()) amax_ = amax_.to(device);
  forget();
}

void TensorQuantizer::forget() {
  const std::scoped_lock lock(mutex_);
  spec_.reset();
  weight_codes_ = {};
}

Variable TensorQuantizer::forward(const Variable& input) {
  if (input.numel() == 0) return input;
  const Variable x = pre_quant_scale_.defined() ? detail::pre_quant_scaled(input, pre_quant_scale_) : input;
  if (!enabled_) return x;
  const bool computes = !x.device().is_meta();
  const bool recorded = grad_enabled() || detail::rerun() != nullptr;
  if (observing_ && computes && !detail::runs_again()) observer_ ? observer_(x) : collect(x.tensor());
  if (running_ && training() && recorded && computes) return quantize_running(x);
  return quantizing_ ? quantize(x) : x;
}

Variable TensorQuantizer::quantize_running(const Variable& x) {
  detail::Rerun* block = detail::rerun();
  if (!detail::runs_again()) {
    move_amax(x);
    if (block != nullptr) block->keep(amax_.clone());
    return quantizing_ ? quantize(x) : x;
  }
  Tensor then = block->next();
  if (!quantizing_) return x;
  const struct Restore {
    TensorQuantizer& q;
    Tensor now;
    ~Restore() {
      q.amax_ = now;
      q.forget();
    }
  } restore{*this, std::exchange(amax_, std::move(then))};
  forget();
  return quantize(x);
}

Variable TensorQuantizer::quantize(const Variable& x) {
  if (arithmetic_ == Arithmetic::reference) return quantize_reference(x);
  const Variable values = detail::as_f32(x);
  const QuantSpec spec = spec_for(values);
  const ops::LearnedRange learned{learned_, amax_gradient_, descriptor_.scale_amax().value_or(1)};
  Variable codes = ops::quantize(values, spec, learned_.defined() ? &learned : nullptr);
  return descriptor_.fake_quant() ? codes : Variable(codes.quantized()->codes);
}

bool TensorQuantizer::keeps_weight_codes(const Variable& w) const {
  const auto* values = std::get_if<Tensor>(&w.value());
  return enabled_ && quantizing_ && !observing_ && arithmetic_ == Arithmetic::deployed &&
         !pre_quant_scale_.defined() && !learned_.defined() && descriptor_.fake_quant() && w.is_leaf() &&
         !w.device().is_meta() && values != nullptr && values->dtype() == DType::f32 && w.numel() > 0;
}

bool TensorQuantizer::wants_weight_mask(const Variable& w) const {
  return (grad_enabled() || detail::rerun() != nullptr) && w.requires_grad() && !pass_through_bwd();
}

std::optional<QuantizedTensor> TensorQuantizer::kept_weight_codes(const Variable& w) const {
  const bool with_mask = wants_weight_mask(w);
  const std::scoped_lock lock(mutex_);
  const auto& [node, version, codes] = weight_codes_;
  const bool known = node == w.node().get() && version == w.tensor().version() && codes;
  if (known && (!with_mask || codes->mask.defined())) return codes;
  return std::nullopt;
}

std::optional<QuantizeRequest> TensorQuantizer::weight_request(const Variable& w) const {
  if (!keeps_weight_codes(w) || kept_weight_codes(w)) return std::nullopt;
  return QuantizeRequest{w.tensor(), spec_for(w), wants_weight_mask(w)};
}

void TensorQuantizer::keep_weight_codes(const Variable& w, QuantizedTensor codes) {
  const std::scoped_lock lock(mutex_);
  weight_codes_ = {w.node().get(), w.tensor().version(), std::move(codes)};
}

Variable TensorQuantizer::weight(const Variable& w) {
  if (holds_codes(w)) return packed_weight(w);
  if (!keeps_weight_codes(w)) return (*this)(w);
  if (auto kept = kept_weight_codes(w)) return ops::attach_codes(w, std::move(*kept));
  {
    const std::scoped_lock lock(mutex_);
    weight_codes_ = {};  // before others take their place: a step allocates no more than the one before it
  }
  const QuantizedTensor codes = fq::quantize(w.tensor(), spec_for(w), wants_weight_mask(w));
  keep_weight_codes(w, codes);
  return ops::attach_codes(w, codes);
}

}  // namespace fq
