#include <nlohmann/json.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "arguments.h"
#include "bindings.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/network/qat.h"
#include "graded.h"
#include "interrupts.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;

// Converts by JSON text: the json module of Python makes the objects.
nb::object to_dict(const nlohmann::ordered_json& json) {
  return nb::module_::import_("json").attr("loads")(json.dump());
}

nlohmann::ordered_json parse_config(nb::handle config) {
  return nlohmann::ordered_json::parse(
      nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(config)));
}

nb::object preset(const std::string& name, std::optional<std::int64_t> edge_bits,
                  std::optional<std::string> weight_method) {
  return to_dict(preset_config(name, {std::move(weight_method), edge_bits}));
}

// Names of the argument `amax` of fit.
const char* text(AmaxMode mode) {
  return mode == AmaxMode::learned ? "learned" : mode == AmaxMode::running ? "running" : "frozen";
}

// Reads the first sample, so it runs without the interpreter's lock.
bool is_text_data(nb::handle data) {
  if (data.is_none()) return false;
  const auto samples = to_dataset(data, "qat");
  return unlocked([&] { return is_text(*samples); });
}

/// The keyword arguments of `fit` that training options set.
nb::dict chosen_arguments(const TrainerOptions& options, bool self_distillation) {
  nb::dict out;
  out["learning_rate"] = options.optimizer.learning_rate;
  out["amax"] = text(options.ranges.amax);
  out["amax_gradient"] = options.ranges.amax_gradient == AmaxGradient::lsq ? "lsq" : "clip";
  out["learn_weight_ranges"] = options.ranges.learn_weight_ranges;
  out["amax_rate"] = options.ranges.amax_rate;
  if (self_distillation) out["temperature"] = options.objective.distillation.temperature;
  if (self_distillation) out["teacher_share"] = options.objective.distillation.weight;
  return out;
}

/// Returns the defaults as keyword arguments of `fit`, and a line that reports them.
nb::tuple training_defaults(nb::handle config, nb::handle teacher, std::optional<double> learning_rate,
                            std::int64_t lora, double lora_alpha, nb::handle data) {
  TrainerOptions options;
  options.low_rank = {.rank = lora, .alpha = lora_alpha};
  const bool self = !teacher.is_none();
  if (self) options.objective.distillation.teacher = nb::cast<const Network&>(teacher).shared_module();
  complete_training(options, QuantConfig::from_json(parse_config(config)), {.learning_rate = learning_rate},
                    self, is_text_data(data));
  return nb::make_tuple(chosen_arguments(options, self), describe_training(options, self));
}

/// The keyword arguments of `fit` that a plan sets.
nb::dict fit_arguments(const QatPlan& plan, const Identity& identity) {
  nb::dict out = chosen_arguments(plan.training, plan.self_distillation);
  out["full_rate_steps"] = plan.training.update.full_rate_steps;
  if (plan.self_distillation)
    // The teacher shares the identity of the student: same inputs and outputs.
    out["teacher"] = Network(plan.training.objective.distillation.teacher, identity);
  return out;
}

/// Returns a callback that calls a Python function. The callback acquires the interpreter's lock.
std::function<void(const std::string&)> python_function(const nb::object& function) {
  if (function.is_none()) return {};
  return [function](const std::string& text) {
    const Locked gil;
    function(text);
  };
}

nb::dict qat_plan(Network& self, nb::object data, nb::object preset, std::optional<std::int64_t> edge_bits,
                  std::optional<std::string> weight_method, std::optional<std::string> target,
                  std::optional<std::string> scale, bool keep_batch_norm, std::int64_t samples,
                  std::int64_t batch_size, std::optional<bool> follow_itself,
                  std::optional<double> learning_rate, std::int64_t lora, double lora_alpha, nb::object ranks,
                  nb::object choice_callback) {
  // These arguments would have no effect on a quantized model.
  if (self.quantized() && (!preset.is_none() || edge_bits || weight_method))
    throw ArgumentError("[qat] the model is already quantized: omit preset, edge_bits and weight_method");
  QatOptions options;
  if (!preset.is_none()) options.config = config_text(preset);
  options.preset = {std::move(weight_method), edge_bits};
  options.target = std::move(target);
  options.scale = std::move(scale);
  options.keep_batch_norm = keep_batch_norm;
  options.calibration.samples = samples;
  options.calibration.batches.batch_size = batch_size;
  options.calibration.batches.prefetch = 0;  // data sets over numpy arrays are read on the calling thread
  options.calibration.ranks = to_communicator(ranks);
  options.training.low_rank = {.rank = lora, .alpha = lora_alpha};
  options.choices.learning_rate = learning_rate;
  options.self_distillation = follow_itself;
  options.choice_callback = python_function(choice_callback);
  const auto source = to_dataset(data, "qat");
  // Calibration is the first use of the data. A quantized model is checked by `fit`.
  if (!self.quantized()) warn(take_sample_notes(self.identity().inputs, *source, "calibrate"));
  // All ranks must make the same call. Otherwise they would wait for each other without an end.
  const QatPlan plan = interruptible([&](auto&) {
    check_same_call(options.calibration.ranks.get(), "qat", self.module(),
                    {{"samples", samples}, {"batch_size", batch_size}, {"config", options.config}});
    return prepare_qat(self, source, options);
  });
  return fit_arguments(plan, self.identity());
}

int learn(Network& self, bool activations, bool weights, const std::string& gradient, bool calibrated) {
  const auto kind = gradient == "lsq" ? AmaxGradient::lsq : AmaxGradient::clip;
  // Each range then becomes a parameter when it is calibrated.
  if (!calibrated) return learn_ranges_once_calibrated(self.module(), activations, weights, kind);
  int count = activations ? learn_ranges(self.module(), kind) : 0;
  if (weights) count += learn_weight_ranges(self.module(), kind);
  return count;
}

}  // namespace

void bind_defaults(nb::module_& m) {
  m.def("preset_config", &preset, arg("preset"), arg("edge_bits") = none(), arg("weight_method") = none(),
        "Returns the config of a preset, completed for formats of few bits like the command: a dict.");
  m.def("training_defaults", &training_defaults, arg("config"), arg("teacher") = none(),
        arg("learning_rate") = none(), arg("lora") = 0, arg("lora_alpha") = 0.0, arg("data") = none(),
        "Returns ({keyword arguments of Model.fit}, a line that reports them): the default fine-tuning of a "
        "format on data. Text has defaults of its own.");
  m.def(
      "full_rate_steps",
      [](nb::object config) {
        return qat_defaults(QuantConfig::from_json(parse_config(config))).full_rate_steps;
      },
      arg("config"),
      "Returns the number of steps from which a run uses the full default learning rate of a format.");
  m.def("short_run_rate", &short_run_rate, arg("rate"), arg("steps"), arg("full_rate_steps"),
        "Returns the learning rate of a run of `steps`: rate * (steps / full_rate_steps)^2, at most `rate` "
        "and at least 1e-4.");
  auto model = nb::borrow<nb::class_<Network>>(m.attr("Model"));
  model
      .def_prop_ro(
          "config", [](const Network& self) { return to_dict(self.identity().to_json().at("quantization")); },
          "Quantization config. None for a float model.")
      .def_prop_ro(
          "folded", [](const Network& self) { return self.folded(); }, "Whether batch norms are folded.")
      .def("prepare_qat", &qat_plan, arg("data"), arg("preset") = none(), arg("edge_bits") = none(),
           arg("weight_method") = none(), arg("target") = none(), arg("scale") = none(),
           arg("keep_batch_norm") = false, arg("samples") = 512, arg("batch_size") = 64,
           arg("follow_itself") = none(), arg("learning_rate") = none(), arg("lora") = 0,
           arg("lora_alpha") = 0.0, arg("ranks") = none(), arg("choice_callback") = none(),
           "Prepares qat without the training: folds, quantizes, calibrates, and copies the teacher. Returns "
           "the keyword arguments of fit.")
      .def("learn_ranges", &learn, arg("activations") = true, arg("weights") = true, arg("gradient") = "lsq",
           arg("calibrated") = true,
           "Makes ranges trainable parameters: calibrated ranges, or with calibrated=False the ranges of a "
           "later calibration. Returns the number of ranges.");
}

}  // namespace fq::python
