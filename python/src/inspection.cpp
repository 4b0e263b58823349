#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arguments.h"
#include "bindings.h"
#include "fakequant/core/error.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/network/evaluation.h"
#include "fakequant/network/network.h"
#include "fakequant/report/calibration_page.h"
#include "fakequant/train/data/subset.h"
#include "graded.h"
#include "interrupts.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;

/// Returns (lowest, highest) of a range, or None without a range.
nb::object range_ends(const Tensor& amax) {
  if (!amax.defined() || amax.numel() == 0) return nb::none();
  const auto values = amax.to(Device::cpu()).to(DType::f32).to_vector<float>();
  const auto [least, most] = std::ranges::minmax(values);
  return nb::make_tuple(least, most);
}

nb::list quantizers(Network& self) {
  const auto of_weights = weight_quantizers(self.module());
  nb::list out;
  for (const auto& [name, quantizer, aliases] : named_quantizers(self.module())) {
    nb::dict row;
    row["name"] = name;
    row["aliases"] = nb::cast(aliases);
    // Weights and activations have different calibration, so callers need to know.
    row["weight"] = of_weights.contains(quantizer);
    row["enabled"] = quantizer->params().enabled;
    row["needs_amax"] = quantizer->descriptor().needs_amax();
    row["amax"] = range_ends(quantizer->amax());
    row["format"] = to_string(quantizer->descriptor().format());
    row["descriptor"] = nb::cast(quantizer->descriptor());
    row["description"] = quantizer->describe();
    out.append(row);
  }
  return out;
}

/// Sets all ranges, or throws without a change if a name or a shape does not fit.
void set_amax(Network& self, const nb::dict& ranges) {
  std::map<std::string, TensorQuantizer*> known;
  for (const auto& [name, quantizer, aliases] : named_quantizers(self.module())) {
    known[name] = quantizer;
    // A quantizer with several readers has a name for each.
    for (const auto& alias : aliases) known[alias] = quantizer;
  }
  // All names and arrays are checked before the first range is set.
  std::vector<std::pair<TensorQuantizer*, Tensor>> found;
  for (const auto& [key, value] : ranges) {
    const auto name = nb::cast<std::string>(key);
    const auto at = known.find(name);
    if (at == known.end())
      throw ArgumentError(
          fmt::format("[set_amax] '{}' is no quantizer of the model: quantizers() lists them", name));
    found.emplace_back(at->second, Call{"set_amax"}.host_amax(value, name));
  }
  const Unlocked free;
  for (auto& [quantizer, amax] : found) quantizer->set_amax(amax);
}

/// Returns the dequantized weights of the modules at `paths`.
nb::dict weights_on_grid(Network& self, const std::vector<std::string>& paths) {
  // Weights are computed for reading, without a recording for gradients.
  const NoGrad quiet;
  nb::dict out;
  for (const auto& [path, module] : self.module().named_modules()) {
    if (std::ranges::find(paths, path) == paths.end()) continue;
    auto* quant = dynamic_cast<QuantModule*>(module);
    auto* quantizer = quant != nullptr ? quant->weight_quantizer() : nullptr;
    if (quantizer == nullptr || !quantizer->enabled()) continue;
    const Tensor values =
        unlocked([&] { return quantizer->weight(quant->quantized_weight()).tensor().clone(); });
    out[path.c_str()] = Call{"weights_on_grid"}.give(values);
  }
  return out;
}

// Traces the model with a batch of this size. Nothing is computed.
nb::dict summary_dict(Network& self, std::int64_t batch) {
  const Summary found = summary(self.module(), self.input_shape(batch));
  nb::list rows;
  for (const auto& row : found.rows) {
    nb::dict entry;
    entry["path"] = row.path;
    entry["op"] = row.op;
    entry["output"] = nb::tuple(nb::cast(std::vector<std::int64_t>(row.output.begin(), row.output.end())));
    entry["parameters"] = row.parameters;
    entry["multiply_adds"] = row.multiply_adds;
    entry["activation_bytes"] = row.activation_bytes;
    rows.append(entry);
  }
  nb::dict out;
  out["rows"] = rows;
  out["parameters"] = found.parameters;
  out["multiply_adds"] = found.multiply_adds;
  out["activation_bytes"] = found.activation_bytes;
  return out;
}

std::string calibration_text(Network& self, nb::object data, const std::string& title, std::int64_t samples,
                             std::int64_t batch_size) {
  auto source = to_dataset(data, "calibration_html");
  if (samples > 0) source = some_samples(std::move(source), samples, 0);
  const std::string count = std::to_string(source->size());
  const auto batches = sequential_loader(std::move(source), batch_size);
  // The report runs the network on the data, which may take long.
  return interruptible([&](auto&) {
    CalibrationPage page{.title = title, .quantizers = calibration_report(self.module(), *batches)};
    page.facts.emplace_back("samples", count);
    return calibration_html(page);
  });
}

/// Returns codes in a type that numpy has: 4-bit codes in bytes, 8-bit floats as u8 with their bits.
Tensor numpy_codes(const Tensor& codes) {
  if (bit_width(codes.dtype()) < 8) return unpack_codes(codes);
  if (!is_storage_only(codes.dtype())) return codes;
  Tensor bytes = Tensor::empty(codes.shape(), DType::u8);
  std::memcpy(bytes.mutable_raw(), codes.raw(), static_cast<std::size_t>(codes.nbytes()));
  return bytes;
}

/// Returns ({name: codes of an activation}, {name: axis of the samples, if it is not axis 0}).
nb::tuple activation_codes(Network& self, nb::object x) {
  const Tensor input = Call{"activation_codes"}.tensor(x, "x");
  self.module().eval();
  StateDict found;
  unlocked([&] {
    const NoGrad quiet;
    PredictionParts parts(self, {.codes = true}, [&](const StateDict& part) { found = part; });
    parts.add(input, self.module()(Variable(input)).tensor());
    parts.finish();
  });
  nb::dict codes;
  constexpr std::string_view kPrefix = "codes/";
  for (const auto& [name, tensor] : found.tensors())
    if (name.starts_with(kPrefix))
      codes[name.substr(kPrefix.size()).c_str()] = to_array(numpy_codes(tensor), false);
  const auto axes = found.has_attribute("batch_axes") ? found.attribute("batch_axes").dump() : "{}";
  return nb::make_tuple(codes, nb::module_::import_("json").attr("loads")(axes));
}

std::string plan_text(nb::handle plan, const std::string& title) {
  const auto text = nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(plan));
  return unlocked([&] {
    CalibrationPage page{.title = title, .quantizers = {}};
    page.plan = QuantizationPlan::from_json(nlohmann::ordered_json::parse(text));
    return calibration_html(page);
  });
}

}  // namespace

void bind_inspection(nb::module_& m) {
  auto model = nb::borrow<nb::class_<Network>>(m.attr("Model"));
  model
      .def("quantizers", &quantizers,
           "Returns a dict for each quantizer: name, aliases, weight, enabled, needs_amax, amax ((lowest, "
           "highest) or None), format, descriptor and description.")
      .def("set_amax", &set_amax, arg("ranges"),
           "Sets ranges, {name or alias of a quantizer: range}. Raises ArgumentError for an unknown name and "
           "for another shape.")
      .def("weights_on_grid", &weights_on_grid, arg("paths"),
           "Returns the dequantized weights of the modules at these paths.")
      .def("summary", &summary_dict, arg("batch") = 1,
           "Returns the operators and costs of the model for a batch of this size: {'rows': [{'path', 'op', "
           "'output', 'parameters', 'multiply_adds', 'activation_bytes'}, ..], and the sums}.")
      .def("activation_codes", &activation_codes, arg("x"),
           "Returns ({name of a quantizer of activations: codes}, {name: axis of the samples in the codes if "
           "it is not 0, None if they do not depend on the samples}) of one batch. Codes of 8-bit floats are "
           "their bits.")
      .def("calibration_html", &calibration_text, arg("data"), arg("title") = "calibration",
           arg("samples") = 512, arg("batch_size") = 64,
           "Returns an HTML page with the histogram of each quantizer on data, its range, and the range of "
           "each calibration method.");
  m.def("plan_html", &plan_text, arg("plan"), arg("title") = "plan",
        "Returns an HTML page of a plan of auto_quantize.");
}

}  // namespace fq::python
