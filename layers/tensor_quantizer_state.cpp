#include <nlohmann/json.hpp>

#include "fakequant/core/check.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/tensor_quantizer.h"

namespace fq {

void TensorQuantizer::save(StateDict& state, const std::string& prefix) const {
  state.set_attribute(prefix + "/descriptor", descriptor_.dict());
  state.set_attribute(prefix + "/switches", {{"enabled", enabled_},
                                             {"observing", observing_},
                                             {"quantizing", quantizing_},
                                             {"running", running_},
                                             {"momentum", momentum_},
                                             {"pow2", pow2_},
                                             {"zero_point", zero_point_},
                                             {"may_become_unsigned", may_become_unsigned_},
                                             {"reference", arithmetic_ == Arithmetic::reference}});
  if (amax_.defined()) state.set(prefix + "/amax", amax_.clone());
  if (pre_quant_scale_.defined()) state.set(prefix + "/pre_quant_scale", pre_quant_scale_);
}

void TensorQuantizer::load(const StateDict& state, const std::string& prefix) {
  set_descriptor(QuantDescriptor::from_dict(state.attribute(prefix + "/descriptor")));
  const auto& switches = state.attribute(prefix + "/switches");
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
  } catch (const nlohmann::json::exception& error) {
    throw ArgumentError(
        fmt::format("[quantizer] the saved switches of '{}' are damaged: {}", name_, error.what()));
  }
  amax_ = {};
  if (state.contains(prefix + "/amax")) set_amax(state.at(prefix + "/amax"));
  pre_quant_scale_ =
      state.contains(prefix + "/pre_quant_scale") ? state.at(prefix + "/pre_quant_scale") : Tensor{};
  forget();
}

}  // namespace fq
