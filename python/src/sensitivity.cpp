#include "fakequant/train/sensitivity/sensitivity.h"

#include <nlohmann/json.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "data.h"
#include "fakequant/network/calibration.h"
#include "graded.h"
#include "interrupts.h"
#include "ranks.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;

nb::object dict_of(const nlohmann::ordered_json& json) {
  return nb::module_::import_("json").attr("loads")(json.dump());
}

nb::object measure(Network& self, nb::object data, std::int64_t samples, std::int64_t batch_size,
                   nb::object ranks) {
  const auto batches = in_order(data, batch_size, "sensitivity");
  SensitivityOptions options;
  options.samples = samples;
  options.ranks = ranks_of(ranks);
  return dict_of(interruptible([&](auto&) {
    check_same_call(options.ranks.get(), "sensitivity", self.module(),
                    {{"samples", samples}, {"batch_size", batch_size}});
    return sensitivity(self.module(), *batches, options).to_json();
  }));
}

nb::object plan(Network& self, nb::object data, std::optional<double> effective_bits,
                std::optional<double> accuracy_budget, const std::vector<std::string>& formats,
                std::int64_t samples, std::int64_t batch_size, nb::object ranks) {
  const auto batches = in_order(data, batch_size, "auto_quantize");
  AutoQuantizeOptions options;
  options.constraint = {effective_bits, accuracy_budget};
  options.formats = formats;
  options.calibration_samples = samples;
  options.score_samples = samples;
  options.ranks = ranks_of(ranks);
  const QuantizationPlan found = interruptible([&](auto&) {
    check_same_call(options.ranks.get(), "auto_quantize", self.module(),
                    {{"samples", samples}, {"batch_size", batch_size}, {"formats", formats}});
    return auto_quantize(self, *batches, options);
  });
  return dict_of(found.to_json());
}

}  // namespace

void bind_sensitivity(nb::module_& m) {
  auto model = nb::borrow<nb::class_<Network>>(m.attr("Model"));
  model
      .def("sensitivity", &measure, arg("data"), arg("samples") = 0, arg("batch_size") = 64,
           arg("ranks") = none(),
           "What each layer's quantizers alone cost the calibrated model, the worst first, as a dict.")
      .def("auto_quantize", &plan, arg("data"), arg("effective_bits") = none(),
           arg("accuracy_budget") = none(), arg("formats") = std::vector<std::string>{"w4a8", "int8", "none"},
           arg("samples") = 512, arg("batch_size") = 64, arg("ranks") = none(),
           "Gives each layer a format, so that the model loses least with so many bits a weight, or has the "
           "fewest bits with so small a loss of accuracy (0 to 1). The model is quantized and calibrated by "
           "the plan, which is returned as a dict.");
}

}  // namespace fq::python
