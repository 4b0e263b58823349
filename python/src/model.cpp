#include <algorithm>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arguments.h"
#include "bindings.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/random.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/export/safetensors/compressed_tensors.h"
#include "fakequant/export/safetensors/modelopt.h"
#include "fakequant/export/transformers/import.h"
#include "fakequant/layers/model/builtin_models.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/network/qat.h"
#include "graded.h"
#include "interrupts.h"

namespace fq::python {

// A dict becomes JSON text, a string is the name of a preset or JSON text.
std::string config_text(nb::handle config) {
  return nb::isinstance<nb::str>(config)
             ? nb::cast<std::string>(config)
             : nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(config));
}

namespace {

using nb::arg, nb::none;

// x: [N, sample shape]. `like` is x, so the result has its array type.
nb::object forward(Network& self, nb::object x) {
  const Call call{"model", x};
  const Tensor input = call.tensor(x, "x");
  if (!input.defined()) throw ArgumentError("[model] x is None: use an array");
  return call.give(unlocked([&] {
    const NoGrad quiet;
    return self.module()(Variable(input)).tensor();
  }));
}

/// Returns copies of parameters and buffers, with the names and layouts of torch.
nb::dict state_dict(const Network& self) {
  nb::dict out;
  const Call call{"state_dict"};
  for (const auto& [name, parameter] : self.module().named_parameters())
    // clone() after the conversions, which return the same memory if nothing changes.
    out[name.c_str()] = call.give(parameter.tensor().to(Device::cpu()).to(Layout::row_major).clone());
  for (const auto& [name, buffer] : self.module().named_buffers())
    out[name.c_str()] = call.give(buffer.to(Device::cpu()).to(Layout::row_major).clone());
  return out;
}

struct Copy {
  Tensor target, source;
};

Copy matched(const nb::dict& state, const std::string& name, const Tensor& target) {
  if (!state.contains(name.c_str()))
    throw ArgumentError(fmt::format("[load_state_dict] '{}' is missing", name));
  const Tensor source = Call{"load_state_dict"}.tensor(nb::borrow(state[name.c_str()]), name);
  // The counter of a batch norm is one number, as a scalar or with one axis.
  const bool count = name.ends_with("num_batches_tracked");
  if (!source.defined() || (source.shape() != target.shape() && !(count && source.numel() == target.numel())))
    throw ArgumentError(fmt::format("[load_state_dict] '{}' is {}, the model has {}", name,
                                    source.defined() ? source.describe() : "None", target.describe()));
  return {target, source.to(target.dtype())};
}

// Buffers are handles: copying into them changes the model.
void load_state_dict(Network& self, const nb::dict& state) {
  check_not_compressed(self.module(), "load_state_dict");
  // Two passes: all entries are matched before the first one is copied, so that an error changes nothing.
  std::vector<Copy> copies;
  for (auto [name, parameter] : self.module().named_parameters())
    copies.push_back(matched(state, name, parameter.mutable_tensor()));
  for (const auto& [name, buffer] : self.module().named_buffers())
    copies.push_back(matched(state, name, buffer));
  // Every parameter was found, so a larger state has names that the model does not have.
  if (copies.size() != state.size()) {
    const nb::dict own = state_dict(self);
    for (const auto& entry : state)
      if (!own.contains(entry.first))
        throw ArgumentError(fmt::format("[load_state_dict] '{}' is no parameter or buffer of the model",
                                        nb::cast<std::string>(nb::str(entry.first))));
  }
  for (auto& [target, source] : copies) target.copy_from(source.reshape(target.shape()));
}

std::string table(Network& self) {
  std::ostringstream out;
  if (self.quantized()) {
    print_quant_summary(self.module(), out);
  } else {
    out << summary(self.module(), self.input_shape());
  }
  return out.str();
}

/// Returns the format of a file: `format`, or by the end of its name if `format` is empty.
std::string export_format(const std::string& path, const std::string& format) {
  static const std::vector<std::string> formats = {"onnx", "gguf", "modelopt", "compressed-tensors"};
  if (!format.empty()) {
    if (std::ranges::find(formats, format) == formats.end())
      throw ArgumentError(fmt::format("[export] format is '{}': use {}", format, fmt::join(formats, ", ")));
    return format;
  }
  const auto ending = std::filesystem::path(path).extension();
  if (ending.empty() || ending == ".onnx") return "onnx";
  if (ending == ".gguf") return "gguf";
  if (ending == ".safetensors") return "modelopt";
  throw ArgumentError(
      fmt::format("[export] {}: files end in .onnx, .gguf or .safetensors. For other formats, call save and "
                  "run `fakequant export --format`: scales, trt-cache or executorch",
                  path));
}

/// Writes a network with folded batch norms.
void write_network(const Network& folded, const std::string& path, const std::string& format,
                   const OnnxExportOptions& options) {
  if (format == "onnx")
    save_onnx(path, folded.to_onnx(options));
  else if (format == "gguf")
    save_gguf(path, folded.to_gguf(std::filesystem::path(path).stem().string()));
  else if (format == "modelopt")
    save_modelopt(path, folded.module(), FAKEQUANT_VERSION);
  else
    save_compressed_tensors(path, folded.module(), FAKEQUANT_VERSION);
}

void export_model(Network& self, const std::string& path, const std::string& target, int opset, bool emulate,
                  const std::string& format) {
  if (target != "ort" && target != "tensorrt")
    throw ArgumentError(fmt::format("[export] target is '{}': ort and tensorrt are allowed", target));
  const std::string chosen = export_format(path, format);
  if (chosen != "onnx" && (target != "ort" || opset != 0 || emulate))
    throw ArgumentError(
        fmt::format("[export] target, opset and emulate are for ONNX, and the format is {}", chosen));
  OnnxExportOptions options;
  options.target = target == "ort" ? Target::ort : Target::tensorrt;
  options.opset = opset;
  options.emulate = emulate;
  // Folding and building the graph run few operators, so interrupts are also checked between the steps.
  interruptible([&](InterruptWatch& watch) {
    Network folded =
        self.clone();  // evaluation has the bits of the folded network, and engines fold differently
    watch.look();
    folded.fold();
    watch.look();
    write_network(folded, path, chosen, options);
    return true;
  });
}

// Returns the model, so that calls can be chained.
Network& quantize_model(Network& self, nb::object config) {
  const auto json = quantization_config(config_text(config));
  unlocked([&] { self.quantize(json); });
  return self;
}

/// Returns (patterns that match nothing in this part, names of the quantizers that rules could switch on).
nb::tuple quantize_part(Network& self, nb::object config, bool has_first, bool has_last) {
  const auto json = quantization_config(config_text(config));
  // torch models may be quantized in parts. Rules for the first and the last layer must apply to the whole
  // network.
  NetworkPart part{.has_first = has_first, .has_last = has_last, .unmatched = {}, .names = {}};
  unlocked([&] { self.quantize(json, &part); });
  return nb::make_tuple(part.unmatched, part.names);
}

Network load_network(const std::string& path, const std::optional<std::vector<std::int64_t>>& input_shape) {
  const bool imported = path.ends_with(".onnx") || path.ends_with(".gguf") || is_transformer(path);
  if (!imported && input_shape)
    throw ArgumentError(
        fmt::format("[load] input_shape is for ONNX, GGUF and folders of transformers, and {} "
                    "is a checkpoint, which has its shape",
                    path));
  if (!imported) return Network::load(path);
  ImportOptions options;
  if (input_shape) options.sample_shape = Shape(input_shape->begin(), input_shape->end());
  return Network::import_file(path, options);
}

void bind_class(nb::module_& m) {
  nb::class_<Network>(m, "Model", "A network, float or quantized, with the description to build it again.")
      .def("__call__", &forward, arg("x"),
           "Returns the outputs for a batch, without a recording for gradients.")
      .def("quantize", &quantize_model, arg("config") = "int8", nb::rv_policy::reference_internal,
           "Adds quantizers. `config` is the name of a preset, or a config as a dict or JSON text. Returns "
           "the model. Raises ArgumentError for an unknown preset and an invalid config.")
      .def("quantize_part", &quantize_part, arg("config"), arg("has_first"), arg("has_last"),
           "Quantizes a part of a network like `quantize`. `has_first` and `has_last` say whether the part "
           "has the first and last layer of the network. Returns (patterns that match nothing in this part, "
           "names of the quantizers that rules could switch on).")
      .def("fold_batch_norm", &Network::fold,
           "Folds batch norms into the layers before them. Returns their number.")
      .def(
          "fold_weight", [](Network& self) { fold_weight(self.module()); },
          "Replaces weights by their dequantized codes. The float weights are lost.")
      .def(
          "enable_quantizer",
          [](Network& self, const std::string& pattern) { return enable_quantizer(self.module(), pattern); },
          arg("pattern"), "Switches quantizers on by a pattern of names. Returns their number.")
      .def(
          "disable_quantizer",
          [](Network& self, const std::string& pattern) { return disable_quantizer(self.module(), pattern); },
          arg("pattern"), "Switches quantizers off by a pattern of names. Returns their number.")
      .def(
          "train", [](Network& self, bool on) { self.module().train(on); }, arg("mode") = true,
          "Sets training mode.")
      .def(
          "eval", [](Network& self) { self.module().eval(); }, "Sets evaluation mode.")
      .def(
          "set_training",
          [](Network& self, const std::vector<std::string>& paths, bool on) {
            for (const auto& path : paths) self.module().at(path).train(on);
          },
          arg("paths"), arg("mode"),
          "Sets the mode of modules by their paths, for example a frozen batch norm in training, or dropout "
          "in evaluation.")
      .def(
          "to",
          [](Network& self, const std::string& device) -> Network& {
            const Device where = Device::parse(device);
            unlocked([&] { self.module().to(where); });
            return self;
          },
          arg("device"), nb::rv_policy::reference_internal,
          "Moves the model to a device: \"cpu\", \"cuda\" (the first GPU), \"cuda:1\". Inputs of calls must "
          "be on the same device; data of calibrate, fit and similar functions may be on any device. Returns "
          "the model.")
      .def(
          "training_modes",
          [](const Network& self) {
            nb::dict modes;
            for (const auto& [path, module] : self.module().named_modules())
              modes[path.c_str()] = module->training();
            return modes;
          },
          "Returns {path: whether the module is in training mode}, parents first.")
      .def_prop_ro(
          "device", [](const Network& self) { return to_string(self.module().device()); },
          "Device of the parameters.")
      .def("state_dict", &state_dict,
           "Returns copies of parameters and buffers as numpy arrays, with the names and layouts of torch.")
      .def("load_state_dict", &load_state_dict, arg("state_dict"),
           "Sets parameters and buffers from arrays of numpy or torch. Raises ArgumentError for a missing or "
           "unknown name and for another shape; the model is then unchanged.")
      .def(
          "amax",
          [](Network& self) {
            nb::dict out;
            for (const auto& entry : named_quantizers(self.module()))
              out[entry.name.c_str()] = Call{"amax"}.give(
                  entry.quantizer->amax().defined() ? entry.quantizer->amax().clone() : Tensor());
            return out;
          },
          "Returns the ranges of all quantizers by name; None for a quantizer without a range.")
      .def("save", &Network::save, arg("path"), "Writes a checkpoint, as the command does.")
      .def(
          "export", &export_model, arg("path"), arg("target") = "ort", arg("opset") = 0,
          arg("emulate") = false, arg("format") = "",
          "Writes a file for engines. `format` is \"onnx\" (QuantizeLinear and DequantizeLinear nodes), "
          "\"gguf\" (llama.cpp), \"modelopt\" (safetensors with hf_quant_config.json) or "
          "\"compressed-tensors\" (safetensors with config.json); the default follows from the ending "
          ".onnx, .gguf or .safetensors. Live batch norms are folded in the file; the model does not change. "
          "For ONNX, `target` is \"ort\" or \"tensorrt\", `opset` 0 is the smallest opset that has the "
          "operators, and `emulate` writes formats that the engine does not have as arithmetic.")
      .def_prop_ro("quantized", &Network::quantized, "Whether the model has quantizers.")
      .def_prop_ro(
          "sample_shape",
          [](const Network& self) { return nb::tuple(nb::cast(self.identity().sample_shape)); },
          "Shape of one sample, without the batch axis.")
      .def_prop_ro(
          "classes", [](const Network& self) { return self.identity().classes; },
          "Number of outputs of a sample, or of each position of a sample. 0 if unknown.")
      .def("__str__", &table)
      .def("__repr__", &table);
}

}  // namespace

void bind_model(nb::module_& m) {
  bind_class(m);
  m.def(
      "model",
      [](const std::string& model, const std::vector<std::int64_t>& sample_shape, std::int64_t classes,
         nb::object options, std::uint64_t seed) {
        const std::string text =
            options.is_none() ? ""
                              : nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(options));
        return unlocked([&] {
          return Network::create(Identity{.model = ModelSpec::load(model, text),
                                          .sample_shape = Shape(sample_shape),
                                          .classes = classes},
                                 seed);
        });
      },
      arg("name"), arg("sample_shape"), arg("classes") = 0, arg("options") = none(), arg("seed") = 0,
      "Returns a built-in model (builtin_models() lists them) or the model of a model file. `sample_shape` "
      "is the shape of one sample, without the batch axis. `classes` is the number of outputs of a sample; "
      "with 0 it comes from the model. `options` is a dict of options of the model, `seed` the seed of its "
      "first weights.");
  m.def(
      "load",
      [](const std::string& path, const std::optional<std::vector<std::int64_t>>& input_shape) {
        return unlocked([&] { return load_network(path, input_shape); });
      },
      arg("path"), arg("input_shape") = none(),
      "Returns the model of a checkpoint, an ONNX or GGUF file, or a folder that save_pretrained of "
      "transformers wrote. Quantized files keep their codes and scales. `input_shape` is the shape of one "
      "sample if the file does not fix it, [tokens] for texts. Raises FileError for a damaged file and a "
      "file "
      "of another kind.");
  m.def("builtin_models", &builtin_models, "Returns the names of the built-in models.");
  m.def("presets", &QuantConfig::preset_names, "Returns the names of the presets, for Model.quantize.");
}

}  // namespace fq::python
