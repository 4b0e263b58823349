#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arguments.h"
#include "bindings.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/network/network.h"
#include "fakequant/network/qat.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/data/subset.h"
#include "fakequant/train/sensitivity/sensitivity.h"
#include "graded.h"
#include "interrupts.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;

// Whether each token or pixel has a class: integer labels with more than the axis of samples.
bool has_class_of_each_part(const Dataset& data) {
  const Tensor y = data.labels();
  return y.defined() && y.rank() > 1 && !is_floating(y.dtype());
}

}  // namespace

Loss default_loss(const Dataset& data, double label_smoothing) {
  if (!has_class_of_each_part(data)) return {};
  return make_loss({.label_smoothing = label_smoothing});
}

std::vector<std::string> default_metrics(const Dataset& data) {
  if (!has_class_of_each_part(data)) return {};
  return data.token_ids() ? std::vector<std::string>{"bpc", "accuracy"}
                          : std::vector<std::string>{"accuracy"};
}

nb::dict evaluation_dict(const Evaluation& found) {
  nb::dict out;
  out["loss"] = found.loss;
  out["accuracy"] = found.accuracy;
  out["count"] = found.count;
  out["correct"] = found.correct;
  for (const auto& [name, value] : found.metrics) out[name.c_str()] = value;
  return out;
}

namespace {

/// Returns the calibration options of the config and its rules, as in the command.
CalibrateOptions calibrate_options(const Network& self, const std::string& method,
                                   std::optional<double> percentile) {
  CalibrateOptions options;
  if (self.quantized()) {
    const QuantConfig config = self.identity().config();
    options.amax = config.amax;
    // Rules of the config name methods for some quantizers.
    options.rules = config.calibration;
  }
  options.method = method;
  if (percentile) options.amax.percentile = *percentile;
  return options;
}

nb::dict report_dict(const CalibrationReport& report) {
  nb::dict out;
  out["samples"] = report.samples;
  out["quantizers"] = report.quantizers;
  out["passes"] = report.passes;
  out["masked"] = report.masked;
  return out;
}

/// Returns a mask of numpy or torch as f32.
/// numpy arrays have astype, torch tensors have float().
nb::object as_floats(const nb::object& mask) {
  if (nb::hasattr(mask, "astype")) return mask.attr("astype")("float32");
  return nb::hasattr(mask, "float") ? mask.attr("float")() : mask;
}

/// Returns the data set of the samples, and the mask of its batches. The mask is an input of the network by
/// name, or an array for arrays of samples, which then has the place of the labels in the batches.
std::pair<std::shared_ptr<const Dataset>, BatchMask> data_with_mask(Network& self, const nb::object& data,
                                                                    const nb::object& mask,
                                                                    const char* function) {
  if (mask.is_none()) return {to_dataset(data, function), {}};
  if (nb::isinstance<nb::str>(mask))
    return {to_dataset(data, function),
            mask_of_input(self.module(), self.input_shape(), nb::cast<std::string>(mask))};
  if (nb::isinstance<Dataset>(data))
    throw ArgumentError(fmt::format(
        "[{}] mask is an array and data a data set: use arrays as data, or the name of an input as mask",
        function));
  const nb::object x = PyTuple_Check(data.ptr()) != 0 ? nb::object(data[0]) : data;
  const Call call{function};
  return {std::make_shared<TensorDataset>(call.host(x, "x"), call.host(as_floats(mask), "mask")),
          // The mask has the place of the labels, so that it is batched along with the samples. Calibration
          // reads no labels.
          [](const Batch& batch) { return batch.y; }};
}

/// Calibrates with samples spread over the data, as the command does. The weight algorithm of the config runs
/// too.
nb::dict calibrate_model(Network& self, nb::object data, const std::string& method, std::int64_t samples,
                         std::optional<double> percentile, std::int64_t batch_size, nb::object ranks,
                         nb::object mask) {
  NetworkCalibrateOptions options;
  options.samples = samples;
  options.batches.batch_size = batch_size;
  options.batches.prefetch = 0;  // data sets over numpy arrays are read on the calling thread
  options.method = method;
  options.percentile = percentile;
  options.ranks = to_communicator(ranks);
  std::shared_ptr<const Dataset> source;
  std::tie(source, options.mask) = data_with_mask(self, data, mask, "calibrate");
  warn(take_sample_notes(self.identity().inputs, *source, "calibrate"));
  // A float model has nothing to calibrate, which is no error.
  if (!self.quantized()) return report_dict({});
  // `interruptible` computes without the interpreter's lock and checks for Ctrl-C at every operator.
  return report_dict(interruptible([&](auto&) {
    check_same_call(
        options.ranks.get(), "calibrate", self.module(),
        {{"data", source->size()}, {"samples", samples}, {"batch_size", batch_size}, {"method", method}});
    return calibrate(self, source, options).report;
  }));
}

nb::dict collect(Network& self, nb::object data, const std::string& method, bool keep_collected,
                 std::int64_t batch_size, nb::object mask) {
  CalibrateOptions options = calibrate_options(self, method, {});
  options.keep_collected = keep_collected;
  auto [source, own] = data_with_mask(self, data, mask, "collect_ranges");
  options.mask = std::move(own);
  const auto batches = sequential_loader(std::move(source), batch_size);
  return report_dict(interruptible([&](auto&) { return collect_ranges(self.module(), *batches, options); }));
}

nb::dict choose(Network& self, const std::string& method, std::optional<double> percentile) {
  const CalibrateOptions options = calibrate_options(self, method, percentile);
  return report_dict(interruptible([&](auto&) { return choose_ranges(self.module(), options); }));
}

}  // namespace

void bind_training(nb::module_& m) {
  auto model = nb::borrow<nb::class_<Network>>(m.attr("Model"));
  model
      .def("calibrate", &calibrate_model, arg("data"), arg("method") = "", arg("samples") = 0,
           arg("percentile") = none(), arg("batch_size") = 64, arg("ranks") = none(), arg("mask") = none(),
           "Sets the ranges of all quantizers from data. `samples` limits the data to samples spread over "
           "it, 0 for all. The weight_algorithm and the postprocess of the config run too. `mask` is an "
           "array [N, T] for arrays of samples, or the name of an input. Positions where it is 0 are padding "
           "and do not change ranges.")
      .def("collect_ranges", &collect, arg("data"), arg("method") = "", arg("keep_collected") = false,
           arg("batch_size") = 64, arg("mask") = none(),
           "Collects the activations of data for choose_ranges, the first half of calibrate. With "
           "`keep_collected`, adds to the earlier data. Returns a dict of counts; \"masked\" is the number "
           "of tensors with the positions of the mask.")
      .def("choose_ranges", &choose, arg("method") = "", arg("percentile") = none(),
           "Sets the ranges, the second half of calibrate: ranges of activations from the collected data, "
           "ranges of weights from the weights.")
      .def(
          "evaluate",
          [](Network& self, nb::object data, std::int64_t batch_size, nb::object given) {
            const auto ranks = to_communicator(given);
            const auto samples = to_dataset(data, "evaluate");
            warn(check_sample_notes(self.identity().inputs, *samples, "evaluate"));
            const auto batches = sequential_loader(samples, batch_size, ranks.get());
            return evaluation_dict(interruptible([&](auto&) {
              // All ranks compare the call first. Ranks with different arguments would wait for each other.
              check_same_call(ranks.get(), "evaluate", self.module(),
                              {{"samples", samples->size()}, {"batch_size", batch_size}});
              return evaluate(self.module(), *batches, nullptr, default_loss(*samples),
                              default_metrics(*samples), {}, ranks.get());
            }));
          },
          arg("data"), arg("batch_size") = 256, arg("ranks") = none(),
          "Returns {'loss', 'accuracy', 'count', 'correct'} on a data set or (x, y). For tokens with a class "
          "for each token also 'bpc', bits per character. Raises NumericError for NaN outputs.")
      .def(
          "predict",
          [](Network& self, nb::object data, std::int64_t batch_size, nb::object given) {
            const auto ranks = to_communicator(given);
            const auto batches = sequential_loader(data, batch_size, "predict", ranks.get());
            warn(check_sample_notes(self.identity().inputs, batches->data(), "predict"));
            const nb::object x = PyTuple_Check(data.ptr()) != 0 ? nb::object(data[0]) : data;
            return Call{"predict", x}.give(interruptible([&](auto&) {
              check_same_call(ranks.get(), "predict", self.module(),
                              {{"samples", batches->data().size()}, {"batch_size", batch_size}});
              return predict(self.module(), *batches, ranks.get());
            }));
          },
          arg("data"), arg("batch_size") = 256, arg("ranks") = none(),
          "Returns the outputs for all samples, in their order.");
}

namespace {

nb::object json_dict(const nlohmann::ordered_json& json) {
  return nb::module_::import_("json").attr("loads")(json.dump());
}

nb::object measure(Network& self, nb::object data, std::int64_t samples, std::int64_t batch_size,
                   nb::object ranks) {
  const auto batches = sequential_loader(data, batch_size, "sensitivity");
  SensitivityOptions options;
  options.samples = samples;
  options.ranks = to_communicator(ranks);
  return json_dict(interruptible([&](auto&) {
    check_same_call(options.ranks.get(), "sensitivity", self.module(),
                    {{"samples", samples}, {"batch_size", batch_size}});
    return sensitivity(self.module(), *batches, options).to_json();
  }));
}

nb::object plan(Network& self, nb::object data, std::optional<double> effective_bits,
                std::optional<double> accuracy_budget, const std::vector<std::string>& formats,
                std::int64_t samples, std::int64_t batch_size, nb::object ranks) {
  const auto batches = sequential_loader(data, batch_size, "auto_quantize");
  AutoQuantizeOptions options;
  options.constraint = {effective_bits, accuracy_budget};
  options.formats = formats;
  options.calibration_samples = samples;
  // Formats are scored on the samples that they are calibrated on.
  options.score_samples = samples;
  options.ranks = to_communicator(ranks);
  const QuantizationPlan found = interruptible([&](auto&) {
    check_same_call(options.ranks.get(), "auto_quantize", self.module(),
                    {{"samples", samples}, {"batch_size", batch_size}, {"formats", formats}});
    return auto_quantize(self, *batches, options);
  });
  return json_dict(found.to_json());
}

}  // namespace

void bind_sensitivity(nb::module_& m) {
  auto model = nb::borrow<nb::class_<Network>>(m.attr("Model"));
  model
      .def("sensitivity", &measure, arg("data"), arg("samples") = 0, arg("batch_size") = 64,
           arg("ranks") = none(),
           "Returns the cost of the quantizers of each layer alone in the calibrated model, largest cost "
           "first, as a dict.")
      .def("auto_quantize", &plan, arg("data"), arg("effective_bits") = none(),
           arg("accuracy_budget") = none(), arg("formats") = std::vector<std::string>{"w4a8", "int8", "none"},
           arg("samples") = 512, arg("batch_size") = 64, arg("ranks") = none(),
           "Chooses a format for each layer. `effective_bits` bounds the mean bits per weight, and the loss "
           "increase is minimized. `accuracy_budget` (0 to 1) bounds the loss of accuracy, and the bits are "
           "minimized. Quantizes and calibrates the model by the plan. Returns the plan as a dict.");
}

}  // namespace fq::python
