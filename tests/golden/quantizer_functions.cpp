#include <nlohmann/json.hpp>

#include "fakequant/core/error.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/reference/modelopt.h"
#include "fakequant/reference/tensorrt.h"
#include "functions.h"

namespace fq::golden {
namespace {

using nlohmann::json;

/// A number or a list of numbers, under the name that ModelOpt gives it.
void copy_numbers(const Case& c, const std::string& name, json& to) {
  const auto values = c.integers(name);
  if (values.empty()) return;
  to[name] = values.size() == 1 ? json(values[0]) : json(values);
}

json attributes(const Case& c) {
  json out = json::object();
  copy_numbers(c, "num_bits", out);
  copy_numbers(c, "axis", out);
  for (const char* name : {"unsigned", "narrow_range", "pass_through_bwd", "enable", "learn_amax"})
    if (c.has(name)) out[name] = c.flag(name, false);
  const auto axes = c.integers("block_axes"), lengths = c.integers("block_lengths");
  if (axes.size() != lengths.size()) throw ArgumentError("[golden] block_axes and block_lengths differ");
  for (std::size_t i = 0; i < axes.size(); ++i) out["block_sizes"][std::to_string(axes[i])] = lengths[i];
  if (!c.text("type").empty()) out["type"] = c.text("type");
  return out;
}

TensorQuantizer make_quantizer(const Case& c, bool dynamic) {
  auto options = modelopt::quantizer_attribute_config(attributes(c)).options();
  options.dynamic = dynamic;
  return TensorQuantizer(QuantDescriptor(options), Arithmetic::reference);
}

Outputs tensor_quantizer(const Case& c) {
  const bool calibrate = c.flag("calibrate", false), given = c.tensor("amax").defined();
  TensorQuantizer quantizer = make_quantizer(c, !calibrate && !given);
  quantizer.to(c.tensor("x").device());
  quantizer.update([&](QuantParams& s) {
    s.pass_through_bwd = c.flag("pass_through_bwd", true);
    s.pre_quant_scale = c.tensor("pre_quant_scale");
  });
  if (given) quantizer.set_amax(c.tensor("amax"));
  if (calibrate) {
    quantizer.set_observing(true);
    quantizer.set_quantizing(false);
    (void)quantizer(Variable(c.tensor("x")));
    quantizer.load_calibrated_amax();
    quantizer.set_observing(false);
    quantizer.set_quantizing(true);
  }
  Outputs out = with_gradient(c, [&](const Variable& x) { return quantizer(x); });
  if (!quantizer.amax().defined()) return out;
  out["amax"] = quantizer.amax();
  out["export_amax"] = export_amax(quantizer, c.tensor("x").shape());
  return out;
}

Outputs export_amax(const Case& c) {
  TensorQuantizer quantizer = make_quantizer(c, false);
  quantizer.set_amax(c.tensor("amax"));
  return {{"export_amax", export_amax(quantizer, c.tensor("x").shape())}};
}

Outputs quantizer_attribute_config(const Case& c) {
  (void)modelopt::quantizer_attribute_config(attributes(c));
  return {};
}

Outputs calibration_cache_scale(const Case& c) {
  const Tensor amax = c.tensor("amax");
  const std::string hex =
      amax.defined() ? tensorrt::calibration_cache_entry(static_cast<float>(amax.item())) : c.text("hex");
  return {{"scale", Tensor::scalar(static_cast<double>(tensorrt::calibration_cache_scale(hex)))}};
}

}  // namespace

void add_quantizer(Functions& functions) {
  functions["tensor_quantizer"] = tensor_quantizer;
  functions["quantizer_attribute_config"] = quantizer_attribute_config;
  functions["export_amax"] = export_amax;
  functions["calibration_cache_scale"] = calibration_cache_scale;
}

}  // namespace fq::golden
