#include "fakequant/layers/quantizer/detail/weight_codes.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/rerun.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/quantized.h"
#include "fakequant/core/tape.h"
#include "fakequant/layers/quantizer/detail/grid_cache.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"

namespace fq {

bool WeightCodes::keeps(const Variable& w) const {
  const auto* values = std::get_if<Tensor>(&w.value());
  // A learned range, a pre_quant_scale and a zero range need the path of forward: they record a gradient or
  // pass floats.
  const bool gives_codes = params_.arithmetic == Arithmetic::deployed && params_.descriptor.fake_quant() &&
                           !params_.pre_quant_scale.defined() && !range_.learned().defined() &&
                           !range_.is_zero();
  // Only a leaf, the parameter itself, keeps its value from call to call.
  return params_.enabled && params_.quantizing && !params_.observing && gives_codes && w.is_leaf() &&
         !w.device().is_meta() && values != nullptr && values->dtype() == DType::f32 && w.numel() > 0;
}

namespace {

/// Whether a backward pass may follow. A checkpointed block records in its second run.
bool records() noexcept { return grad_enabled() || detail::rerun() != nullptr; }

/// Whether products of the backward pass read factors of weights. A weight without a gradient has them too:
/// the gradient of the input needs them.
bool wants_factors() noexcept { return records() && backward_type() == BackwardType::bf16; }

}  // namespace

/// Whether a gradient will be clipped.
bool WeightCodes::wants_mask(const Variable& w) const {
  return records() && w.requires_grad() && !params_.passes_through();
}

std::optional<QuantizedTensor> WeightCodes::kept(const Variable& w) const {
  const bool with_mask = wants_mask(w);
  const std::scoped_lock lock(mutex_);
  const auto& [node, version, for_gradients, codes] = kept_;
  const bool known = node == w.node().get() && version == w.tensor().version() && codes &&
                     (for_gradients || !wants_factors());
  // Codes from evaluation have no mask and no factors. Training then quantizes again.
  if (known && (!with_mask || codes->mask.defined())) return codes;
  return std::nullopt;
}

std::optional<QuantizeRequest> WeightCodes::request(const Variable& w) const {
  // Schemes without a range quantize by themselves, and a growing range changes in forward.
  if (!keeps(w) || !params_.weight_scheme->uses_range() || range_.grows() || kept(w)) return std::nullopt;
  return QuantizeRequest{w.tensor(), grid_.input_grid(w), wants_mask(w), wants_factors()};
}

void WeightCodes::keep(const Variable& w, QuantizedTensor codes) {
  const std::scoped_lock lock(mutex_);
  kept_ = {w.node().get(), w.tensor().version(), wants_factors(), std::move(codes)};
}

Variable WeightCodes::of(const Variable& w) {
  if (auto known = kept(w)) return ops::attach_codes(w, std::move(*known));
  const auto one = request(w);
  forget();  // frees the old codes first, so that memory does not grow from step to step
  const QuantizedTensor codes =
      one ? quantize(std::span(&*one, 1)).front()
          : params_.weight_scheme->quantize(w, {params_, grid_, extreme_codes_}, wants_mask(w));
  keep(w, codes);
  return ops::attach_codes(w, codes);
}

void WeightCodes::forget() {
  const std::scoped_lock lock(mutex_);
  kept_ = {};
}

Grid WeightCodes::packed_grid(int rank, Device device) const {
  const QuantDescriptor& d = params_.descriptor;
  if (!scales_.defined()) {
    FQ_CHECK(
        d.needs_amax() && !d.has_dynamic_blocks(), "quantizer",
        "{} computes its ranges from each input, but its packed weight has no scales: use a file with both",
        detail::quantizer_label(params_.name));
    return grid_.fixed_grid(rank, device);
  }
  // One scale is per tensor, although the descriptor has axes.
  const bool one = scales_.values.numel() == 1 && d.block_sizes().empty();
  Grid grid =
      unpack_scales(scales_, d.format(), one ? Granularity::per_tensor() : d.granularity(rank), params_.name);
  // As in GridCache::make_grid: block scales of 8 bits have no storage offset.
  if (grid.scale_bits == 0) grid.zero_point = params_.zero_point;
  grid.pass_through_bwd = params_.passes_through();
  return grid.to(device);
}

QuantizedTensor WeightCodes::unpack(const Tensor& packed) const {
  const Format& format = params_.descriptor.format();
  FQ_CHECK(packed.dtype() == packed_dtype(format), "quantizer",
           "the weight of {} is {}: codes of {} are kept as {}", detail::quantizer_label(params_.name),
           packed.describe(), to_string(format), name(packed_dtype(format)));
  Grid grid = packed_grid(packed.rank(), packed.device());
  const std::int64_t blocks = numel(grid.granularity.scale_shape(packed.shape()));
  FQ_CHECK(grid.scale.numel() == blocks, "quantizer",
           "{} has {} scales, its weight {} has {} blocks: use one scale per block",
           detail::quantizer_label(params_.name), grid.scale.numel(), to_string(packed.shape()), blocks);
  // Without a mask: a packed weight has no gradient.
  return {packed.dtype() == format.code_dtype() ? packed : unpack_codes(packed), std::move(grid), {}};
}

void WeightCodes::set_scales(PackedScales scales) {
  if (scales.defined()) check_scales(scales, params_.name);
  scales_ = std::move(scales);
  forget();
}

void WeightCodes::set_extreme_codes(Tensor codes) {
  if (codes.defined())
    for (const float code : codes.to_vector<float>())
      FQ_CHECK(code != 0 && std::isfinite(code), "quantizer",
               "the code {} of a block's largest number, of {}: it must be finite and not 0", code,
               detail::quantizer_label(params_.name));
  extreme_codes_ = std::move(codes);
  forget();
}

void WeightCodes::save(StateDict& state, const std::string& prefix) const {
  if (extreme_codes_.defined()) state.set(prefix + "/extreme_codes", extreme_codes_);
  if (!scales_.defined()) return;
  state.set(prefix + "/weight_scale", scales_.values);
  state.set_attribute(prefix + "/weight_scale_unit", scales_.unit);
}

void WeightCodes::load(const StateDict& state, const std::string& prefix) {
  scales_ = {};
  set_extreme_codes(state.contains(prefix + "/extreme_codes") ? state.at(prefix + "/extreme_codes")
                                                              : Tensor());
  if (!state.contains(prefix + "/weight_scale")) return;
  const auto& unit = state.attribute(prefix + "/weight_scale_unit");
  FQ_CHECK(unit.is_number(), "quantizer", "the unit of the scales of {} is {}: it must be a number",
           detail::quantizer_label(params_.name), unit.dump());
  set_scales({state.at(prefix + "/weight_scale"), unit.get<float>()});
}

}  // namespace fq
