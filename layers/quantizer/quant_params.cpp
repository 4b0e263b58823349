#include "fakequant/layers/quantizer/quant_params.h"

#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/quantizer/detail/weight_scheme.h"

namespace fq {
namespace {

// pytorch-quantization's clip, which the reference arithmetic uses, learns one range per tensor.
void check_learning(const QuantParams& s) {
  if (!s.descriptor.learn_amax() || s.arithmetic == Arithmetic::deployed) return;
  FQ_CHECK(s.descriptor.axis().empty() && s.descriptor.amax().values().size() <= 1, "quantizer",
           "learn_amax of {} with axis: the reference learns one range a tensor, leave axis out or use "
           "arithmetic deployed",
           detail::quantizer_label(s.name));
  FQ_CHECK(s.amax_gradient == AmaxGradient::clip, "quantizer",
           "amax of {} is learned by lsq: the reference learns by clip, use it or arithmetic deployed",
           detail::quantizer_label(s.name));
}

}  // namespace

void check(const QuantParams& s) {
  FQ_CHECK(s.momentum > 0 && s.momentum <= 1, "quantizer", "a momentum of {} for {}: use 0 < momentum <= 1",
           s.momentum, detail::quantizer_label(s.name));
  FQ_CHECK(s.descriptor.block_sizes().scale_bits != NumBits(8), "quantizer",
           "scale_bits 8 of {}: only packed tensors support it, use (4, 3) or (8, 0), or leave it out",
           detail::quantizer_label(s.name));
  check_learning(s);
  s.weight_scheme->check(s);
}

bool QuantParams::passes_through() const noexcept {
  return !weight_scheme->uses_range() || pass_through_bwd.value_or(arithmetic == Arithmetic::reference);
}

std::string_view detail::amax_gradient_name(AmaxGradient gradient) noexcept {
  return gradient == AmaxGradient::clip ? "clip" : "lsq";
}

AmaxGradient detail::amax_gradient_from_name(std::string_view name) {
  for (const AmaxGradient gradient : {AmaxGradient::clip, AmaxGradient::lsq})
    if (amax_gradient_name(gradient) == name) return gradient;
  throw ArgumentError(fmt::format("[quantize] 'amax_gradient' is '{}': use clip or lsq", name));
}

void detail::save_params(const QuantParams& s, StateDict& state, const std::string& prefix) {
  nlohmann::json switches{{"enabled", s.enabled},
                          {"observing", s.observing},
                          {"quantizing", s.quantizing},
                          {"running", s.running},
                          {"momentum", s.momentum},
                          {"pow2", s.pow2},
                          {"zero_point", s.zero_point},
                          {"may_become_unsigned", s.may_become_unsigned},
                          {"reference", s.arithmetic == Arithmetic::reference}};
  // Optional keys are written only where they differ from the default.
  if (s.pass_through_bwd) switches["pass_through_bwd"] = *s.pass_through_bwd;
  if (s.amax_gradient != AmaxGradient::clip) switches["amax_gradient"] = amax_gradient_name(s.amax_gradient);
  // Schemes compare by address.
  if (s.weight_scheme == &binary_weights())
    switches["binary"] = true;
  else if (s.weight_scheme != &plain_weights())
    switches["engine_grid"] = s.weight_scheme->name();
  state.set_attribute(prefix + "/descriptor", s.descriptor.dict());
  state.set_attribute(prefix + "/switches", std::move(switches));
  if (s.pre_quant_scale.defined()) state.set(prefix + "/pre_quant_scale", s.pre_quant_scale);
}

QuantParams detail::load_params(std::string name, const StateDict& state, const std::string& prefix) {
  QuantParams s;
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
    // Optional keys are missing in files of older versions.
    s.amax_gradient = amax_gradient_from_name(switches.value("amax_gradient", "clip"));
    s.weight_scheme = &weight_scheme_named(switches.value("engine_grid", "none"));
    if (switches.value("binary", false)) s.weight_scheme = &binary_weights();
    if (switches.contains("pass_through_bwd")) s.pass_through_bwd = switches["pass_through_bwd"].get<bool>();
  } catch (const nlohmann::json::exception& error) {
    throw ArgumentError(fmt::format("[quantizer] the saved switches of {} are damaged: {}",
                                    quantizer_label(s.name), error.what()));
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{} (the saved switches of {})", error.what(), quantizer_label(s.name)));
  }
  return s;
}

}  // namespace fq
