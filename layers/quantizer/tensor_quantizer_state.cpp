#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/config/detail/quantizer_fields.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq {

void TensorQuantizer::save(StateDict& state, const std::string& prefix) const {
  nlohmann::json switches{{"enabled", enabled_},
                          {"observing", observing_},
                          {"quantizing", quantizing_},
                          {"running", running_},
                          {"momentum", momentum_},
                          {"pow2", pow2_},
                          {"zero_point", zero_point_},
                          {"may_become_unsigned", may_become_unsigned_},
                          {"reference", arithmetic_ == Arithmetic::reference}};
  if (pass_through_bwd_) switches["pass_through_bwd"] = *pass_through_bwd_;
  if (amax_gradient_ != AmaxGradient::clip)
    switches["amax_gradient"] = detail::amax_gradient_name(amax_gradient_);
  state.set_attribute(prefix + "/descriptor", descriptor_.dict());
  state.set_attribute(prefix + "/switches", std::move(switches));
  if (amax().defined()) state.set(prefix + "/amax", amax().clone());
  if (pre_quant_scale_.defined()) state.set(prefix + "/pre_quant_scale", pre_quant_scale_);
  save_calibrator(state, prefix);
  save_weight_scales(state, prefix);
}

void TensorQuantizer::load(const StateDict& state, const std::string& prefix) {
  const auto& switches = state.attribute(prefix + "/switches");
  const QuantDescriptor descriptor = QuantDescriptor::from_dict(state.attribute(prefix + "/descriptor"));
  try {
    enabled_ = switches.at("enabled").get<bool>();
    observing_ = switches.at("observing").get<bool>();
    quantizing_ = switches.at("quantizing").get<bool>();
    running_ = switches.at("running").get<bool>();
    momentum_ = switches.at("momentum").get<double>();
    pow2_ = switches.at("pow2").get<bool>();
    zero_point_ = switches.at("zero_point").get<int>();
    may_become_unsigned_ = switches.at("may_become_unsigned").get<bool>();
    arithmetic_ = switches.at("reference").get<bool>() ? Arithmetic::reference : Arithmetic::deployed;
    amax_gradient_ = detail::amax_gradient_from_name(switches.value("amax_gradient", "clip"));
    pass_through_bwd_.reset();
    if (switches.contains("pass_through_bwd")) pass_through_bwd_ = switches["pass_through_bwd"].get<bool>();
  } catch (const nlohmann::json::exception& error) {
    throw ArgumentError(
        fmt::format("[quantizer] the saved switches of '{}' are damaged: {}", name_, error.what()));
  }
  set_descriptor(descriptor);
  load_amax(state.contains(prefix + "/amax") ? state.at(prefix + "/amax") : Tensor{});
  set_pre_quant_scale(state.contains(prefix + "/pre_quant_scale") ? state.at(prefix + "/pre_quant_scale")
                                                                  : Tensor{});
  load_calibrator(state, prefix);
  load_weight_scales(state, prefix);
  forget();
}

void TensorQuantizer::load_amax(const Tensor& amax) {
  if (!amax.defined()) return drop_amax();
  if (!descriptor_.learn_amax()) {
    drop_amax();
    return set_amax(amax);
  }
  if (learned_.defined() && learned_.numel() != amax.numel()) drop_amax();
  keep_amax(amax);  // a parameter may have been trained below 0
}

}  // namespace fq
