#include <nlohmann/json.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "data.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/network/network.h"
#include "fakequant/train/qat_preset.h"
#include "fakequant/train/qat_training.h"
#include "graded.h"
#include "interrupts.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;

nb::object dict_of(const nlohmann::ordered_json& json) {
  return nb::module_::import_("json").attr("loads")(json.dump());
}

nlohmann::ordered_json json_of(nb::handle config) {
  return nlohmann::ordered_json::parse(
      nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(config)));
}

nb::object preset(const std::string& name, std::optional<std::int64_t> edge_bits,
                  std::optional<std::string> weight_method) {
  return dict_of(preset_config(name, {std::move(weight_method), edge_bits}));
}

const char* text(AmaxMode mode) {
  return mode == AmaxMode::learned ? "learned" : mode == AmaxMode::running ? "running" : "frozen";
}

bool is_text_data(nb::handle data) {
  if (data.is_none()) return false;
  const auto samples = data_of(data, "qat");
  return unlocked([&] { return is_text(*samples); });
}

/// As keyword arguments of `fit`, and the line that tells them.
nb::tuple training_defaults(nb::handle config, nb::handle teacher, std::optional<double> learning_rate,
                            std::int64_t lora, double lora_alpha, nb::handle data) {
  TrainerOptions options;
  options.low_rank = {.rank = lora, .alpha = lora_alpha};
  const bool self = !teacher.is_none();
  if (self) options.distillation.teacher = nb::cast<const Network&>(teacher).shared_module();
  complete_training(options, QuantConfig::from_json(json_of(config)), {.learning_rate = learning_rate}, self,
                    is_text_data(data));
  nb::dict out;
  out["learning_rate"] = options.optimizer.learning_rate;
  out["amax"] = text(options.amax);
  out["amax_gradient"] = options.amax_gradient == AmaxGradient::lsq ? "lsq" : "clip";
  out["learn_weight_ranges"] = options.learn_weight_ranges;
  out["amax_rate"] = options.amax_rate;
  if (self) out["temperature"] = options.distillation.temperature;
  if (self) out["teacher_share"] = options.distillation.weight;
  return nb::make_tuple(out, describe_training(options, self));
}

/// The network itself without quantizers.
Network in_float(const Network& self) { return self.float_clone(); }

bool model_follows_itself(const Network& self, nb::handle data) {
  const auto samples = data_of(data, "qat");
  const bool text = is_text_data(data);
  const bool classes =
      samples->classes() >= 2 && samples->labels().defined() && samples->labels().rank() == 1;
  if (!self.quantized() || (!text && !classes)) return false;
  const auto config = self.identity().config();
  return interruptible(
      [&](auto&) { return follows_itself(config, text ? 0 : float_accuracy(self.module(), samples), text); });
}

int learn(Network& self, bool activations, bool weights, const std::string& gradient, bool calibrated) {
  const auto kind = gradient == "lsq" ? AmaxGradient::lsq : AmaxGradient::clip;
  if (!calibrated) return learn_ranges_once_calibrated(self.module(), activations, weights, kind);
  int count = activations ? learn_ranges(self.module(), kind) : 0;
  if (weights) count += learn_weight_ranges(self.module(), kind);
  return count;
}

}  // namespace

void bind_defaults(nb::module_& m) {
  m.def("preset_config", &preset, arg("preset"), arg("edge_bits") = none(), arg("weight_method") = none(),
        "The config of a preset with what few bits need beside it, as the command completes it: a dict.");
  m.def(
      "describe_choice",
      [](nb::object config) { return describe_choice(QuantConfig::from_json(json_of(config))); },
      arg("config"), "One line of what a config chooses.");
  m.def(
      "training_defaults", &training_defaults, arg("config"), arg("teacher") = none(),
      arg("learning_rate") = none(), arg("lora") = 0, arg("lora_alpha") = 0.0, arg("data") = none(),
      "({keyword arguments of Model.fit}, a line that tells them): how a format is fine-tuned on data where "
      "nobody asks for something else; text has its own.");
  m.def(
      "full_rate_steps",
      [](nb::object config) { return qat_defaults(QuantConfig::from_json(json_of(config))).full_rate_steps; },
      arg("config"), "Number of steps from which the whole default learning rate of a format is used.");
  m.def("short_run_rate", &short_run_rate, arg("rate"), arg("steps"), arg("full_rate_steps"),
        "The learning rate of a run of `steps`: rate * (steps / full_rate_steps)^2 up to `rate`, at least "
        "1e-4.");
  auto model = nb::borrow<nb::class_<Network>>(m.attr("Model"));
  model
      .def_prop_ro(
          "config", [](const Network& self) { return dict_of(self.identity().to_json().at("quantization")); },
          "The quantization config, None of a float model.")
      .def_prop_ro("folded", [](const Network& self) { return self.folded(); })
      .def("in_float", &in_float, "A copy without quantizers.")
      .def("follows_itself", &model_follows_itself, arg("data"),
           "Whether the quantized model had better follow its own float outputs: on text with anything but "
           "integers of 8 bits, on other data where it knows 99 % of that by heart in float.")
      .def("learn_ranges", &learn, arg("activations") = true, arg("weights") = true, arg("gradient") = "lsq",
           arg("calibrated") = true,
           "Makes calibrated ranges parameters, or with calibrated=False those of a calibration to come. "
           "Returns "
           "how many.");
}

}  // namespace fq::python
