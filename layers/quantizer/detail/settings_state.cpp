#include "fakequant/layers/quantizer/detail/settings_state.h"

#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/config/detail/quantizer_fields.h"
#include "fakequant/layers/quantizer/detail/engine_codes.h"

namespace fq::detail {

void save_settings(const QuantizerSettings& s, StateDict& state, const std::string& prefix) {
  nlohmann::json switches{{"enabled", s.enabled},
                          {"observing", s.observing},
                          {"quantizing", s.quantizing},
                          {"running", s.running},
                          {"momentum", s.momentum},
                          {"pow2", s.pow2},
                          {"zero_point", s.zero_point},
                          {"may_become_unsigned", s.may_become_unsigned},
                          {"reference", s.arithmetic == Arithmetic::reference}};
  if (s.pass_through_bwd) switches["pass_through_bwd"] = *s.pass_through_bwd;
  if (s.amax_gradient != AmaxGradient::clip) switches["amax_gradient"] = amax_gradient_name(s.amax_gradient);
  if (s.engine_grid != EngineGrid::none) switches["engine_grid"] = engine_grid_name(s.engine_grid);
  if (s.binary) switches["binary"] = true;
  state.set_attribute(prefix + "/descriptor", s.descriptor.dict());
  state.set_attribute(prefix + "/switches", std::move(switches));
  if (s.pre_quant_scale.defined()) state.set(prefix + "/pre_quant_scale", s.pre_quant_scale);
}

QuantizerSettings load_settings(std::string name, const StateDict& state, const std::string& prefix) {
  QuantizerSettings s;
  s.name = std::move(name);
  const auto& switches = state.attribute(prefix + "/switches");
  s.descriptor = QuantDescriptor::from_dict(state.attribute(prefix + "/descriptor"));
  if (state.contains(prefix + "/pre_quant_scale")) s.pre_quant_scale = state.at(prefix + "/pre_quant_scale");
  try {
    s.enabled = switches.at("enabled").get<bool>();
    s.observing = switches.at("observing").get<bool>();
    s.quantizing = switches.at("quantizing").get<bool>();
    s.running = switches.at("running").get<bool>();
    s.momentum = switches.at("momentum").get<double>();
    s.pow2 = switches.at("pow2").get<bool>();
    s.zero_point = whole_value<int>(switches.at("zero_point"));
    s.may_become_unsigned = switches.at("may_become_unsigned").get<bool>();
    if (switches.at("reference").get<bool>()) s.arithmetic = Arithmetic::reference;
    s.amax_gradient = amax_gradient_from_name(switches.value("amax_gradient", "clip"));
    s.engine_grid = engine_grid_from_name(switches.value("engine_grid", "none"));
    s.binary = switches.value("binary", false);
    if (switches.contains("pass_through_bwd")) s.pass_through_bwd = switches["pass_through_bwd"].get<bool>();
  } catch (const nlohmann::json::exception& error) {
    throw ArgumentError(fmt::format("[quantizer] the saved switches of {} are damaged: {}",
                                    quantizer_label(s.name), error.what()));
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{} (the saved switches of {})", error.what(), quantizer_label(s.name)));
  }
  return s;
}

}  // namespace fq::detail
