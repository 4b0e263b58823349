#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/packed.h"
#include "fakequant/core/trace.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq {

QuantSpec TensorQuantizer::packed_spec(int rank, Device device) const {
  if (!weight_scales_.defined()) {
    FQ_CHECK(descriptor_.needs_amax() && !descriptor_.has_dynamic_blocks(), "quantizer",
             "'{}' takes its ranges from each input, and there are no scales with the codes of its weight",
             name_);
    return static_spec(rank, device);
  }
  const bool one = weight_scales_.values.numel() == 1 && descriptor_.block_sizes().empty();
  QuantSpec spec = unpack_scales(weight_scales_, descriptor_.format(),
                                 one ? Granularity::per_tensor() : descriptor_.granularity(rank), name_);
  if (spec.scale_bits == 0) spec.zero_point = zero_point_;
  spec.pass_through_bwd = pass_through_bwd();
  return spec.to(device);
}

QuantizedTensor TensorQuantizer::unpack_weight(const Tensor& packed) const {
  const Format& format = descriptor_.format();
  FQ_CHECK(packed.dtype() == packed_dtype(format), "quantizer",
           "the weight of '{}' is {}: codes of {} are kept as {}", name_, packed.describe(),
           to_string(format), fq::name(packed_dtype(format)));
  QuantSpec spec = packed_spec(packed.rank(), packed.device());
  const std::int64_t blocks = numel(spec.granularity.scale_shape(packed.shape()));
  FQ_CHECK(spec.scale.numel() == blocks, "quantizer",
           "'{}' has {} scales, its weight {} has {} blocks: give one scale per block", name_,
           spec.scale.numel(), to_string(packed.shape()), blocks);
  return {packed.dtype() == format.code_dtype() ? packed : unpack_codes(packed), std::move(spec), {}};
}

Variable TensorQuantizer::packed_weight(const Variable& w) const {
  const PathScope path(std::string_view(name_).substr(name_.rfind('.') + 1));  // as when it runs as a module
  const Variable codes = ops::attach_codes(w, unpack_weight(w.tensor()));
  return enabled_ && quantizing_ ? codes : codes.as_float();
}

void TensorQuantizer::set_weight_scales(PackedScales scales) {
  if (scales.defined()) check_scales(scales, name_);
  weight_scales_ = std::move(scales);
  forget();
}

void TensorQuantizer::save_weight_scales(StateDict& state, const std::string& prefix) const {
  if (!weight_scales_.defined()) return;
  state.set(prefix + "/weight_scale", weight_scales_.values);
  state.set_attribute(prefix + "/weight_scale_unit", weight_scales_.unit);
}

void TensorQuantizer::load_weight_scales(const StateDict& state, const std::string& prefix) {
  weight_scales_ = {};
  if (!state.contains(prefix + "/weight_scale")) return;
  const auto& unit = state.attribute(prefix + "/weight_scale_unit");
  FQ_CHECK(unit.is_number(), "quantizer", "the unit of the scales of '{}' is {}: it must be a number", name_,
           unit.dump());
  set_weight_scales({state.at(prefix + "/weight_scale"), unit.get<float>()});
}

}  // namespace fq
