#include <filesystem>
#include <sstream>

#include <fmt/format.h>
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
#include "fakequant/layers/model/builtin_models.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/network/qat.h"
#include "graded.h"
#include "interrupts.h"

namespace fq::python {

std::string config_text(nb::handle config) {
  return nb::isinstance<nb::str>(config)
             ? nb::cast<std::string>(config)
             : nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(config));
}

namespace {

using nb::arg, nb::none;

nb::object forward(Network& self, nb::object x) {
  const Call call{"model", x};
  const Tensor input = call.tensor(x, "x");
  if (!input.defined()) throw ArgumentError("[model] x is None: give an array");
  return call.give(unlocked([&] {
    const NoGrad quiet;
    return self.module()(Variable(input)).tensor();
  }));
}

/// torch's names and layouts: parameters and buffers, as arrays of their own.
nb::dict state_dict(const Network& self) {
  nb::dict out;
  const Call call{"state_dict"};
  for (const auto& [name, parameter] : self.module().named_parameters())
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
  const bool count = name.ends_with("num_batches_tracked");
  if (!source.defined() || (source.shape() != target.shape() && !(count && source.numel() == target.numel())))
    throw ArgumentError(fmt::format("[load_state_dict] '{}' is {}, the model has {}", name,
                                    source.defined() ? source.describe() : "None", target.describe()));
  return {target, source.to(target.dtype())};
}

void load_state_dict(Network& self, const nb::dict& state) {
  check_not_compressed(self.module(), "load_state_dict");
  std::vector<Copy> copies;
  for (auto [name, parameter] : self.module().named_parameters())
    copies.push_back(matched(state, name, parameter.mutable_tensor()));
  for (const auto& [name, buffer] : self.module().named_buffers())
    copies.push_back(matched(state, name, buffer));
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

void export_model(Network& self, const std::string& path, const std::string& target, int opset,
                  bool emulate) {
  if (target != "ort" && target != "tensorrt")
    throw ArgumentError(fmt::format("[export] target is '{}': ort and tensorrt are allowed", target));
  if (const auto ending = std::filesystem::path(path).extension(); !ending.empty() && ending != ".onnx")
    throw ArgumentError(fmt::format(
        "[export] {}: this writes ONNX, to a file that ends in .onnx; scales, trt-cache, safetensors, "
        "compressed-tensors, gguf and executorch are of the command: fakequant export --format, of "
        "what save wrote",
        path));
  OnnxExportOptions options;
  options.target = target == "ort" ? Target::ort : Target::tensorrt;
  options.opset = opset;
  options.emulate = emulate;
  interruptible([&](InterruptWatch& watch) {
    Network folded =
        self.clone();  // evaluation has the bits of the folded network, and engines fold otherwise
    watch.look();
    folded.fold();
    watch.look();
    const OnnxModel graph = folded.to_onnx(options);
    watch.look();
    save_onnx(path, graph);
    return true;
  });
}

Network& quantize_model(Network& self, nb::object config) {
  const auto json = quantization_config(config_text(config));
  unlocked([&] { self.quantize(json); });
  return self;
}

/// (patterns that match nothing here, names of quantizers that rules could switch on).
nb::tuple quantize_part(Network& self, nb::object config, bool has_first, bool has_last) {
  const auto json = quantization_config(config_text(config));
  NetworkPart part{.has_first = has_first, .has_last = has_last, .unmatched = {}, .names = {}};
  unlocked([&] { self.quantize(json, &part); });
  return nb::make_tuple(part.unmatched, part.names);
}

Network load_network(const std::string& path) {
  if (!path.ends_with(".onnx")) return Network::load(path);
  return Network::from_model(import_onnx(load_onnx(path)), path);
}

void bind_class(nb::module_& m) {
  nb::class_<Network>(m, "Model", "A network, quantized or not, and what it takes to build it again.")
      .def("__call__", &forward, arg("x"), "The outputs for a batch; nothing is recorded.")
      .def("quantize", &quantize_model, arg("config") = "int8", nb::rv_policy::reference_internal,
           "Puts quantizers in: the name of a preset, or a config as a dict or JSON text. Gives the model "
           "itself.")
      .def(
          "quantize_part", &quantize_part, arg("config"), arg("has_first"), arg("has_last"),
          "The same for a part of a network that may have the network's first and last layer: (patterns that "
          "match nothing in this part, names of the quantizers that rules could switch on).")
      .def("fold_batch_norm", &Network::fold, "Folds batch norm into the layers before; returns how many.")
      .def(
          "fold_weight", [](Network& self) { fold_weight(self.module()); },
          "Replaces weights by their dequantized codes; there is no way back.")
      .def(
          "enable_quantizer",
          [](Network& self, const std::string& pattern) { return enable_quantizer(self.module(), pattern); },
          arg("pattern"), "Switches quantizers on by pattern; returns how many.")
      .def(
          "disable_quantizer",
          [](Network& self, const std::string& pattern) { return disable_quantizer(self.module(), pattern); },
          arg("pattern"), "Switches quantizers off by pattern; returns how many.")
      .def(
          "train", [](Network& self, bool on) { self.module().train(on); }, arg("mode") = true,
          "Training mode.")
      .def(
          "eval", [](Network& self) { self.module().eval(); }, "Evaluation mode.")
      .def(
          "set_training",
          [](Network& self, const std::vector<std::string>& paths, bool on) {
            for (const auto& path : paths) self.module().at(path).train(on);
          },
          arg("paths"), arg("mode"),
          "The mode of some modules alone, by their paths: a frozen batch norm in training, dropout in "
          "evaluation.")
      .def(
          "to",
          [](Network& self, const std::string& device) -> Network& {
            const Device where = Device::parse(device);
            unlocked([&] { self.module().to(where); });
            return self;
          },
          arg("device"), nb::rv_policy::reference_internal,
          "Moves the model: \"cpu\", \"cuda\" (the first GPU), \"cuda:1\". Arrays that it is called with lie "
          "there, data of calibrate, fit and the like anywhere. Gives the model itself.")
      .def(
          "training_modes",
          [](const Network& self) {
            nb::dict modes;
            for (const auto& [path, module] : self.module().named_modules())
              modes[path.c_str()] = module->training();
            return modes;
          },
          "Whether each module is in training mode, by its path, parents first.")
      .def_prop_ro(
          "device", [](const Network& self) { return to_string(self.module().device()); },
          "Where its parameters are.")
      .def("state_dict", &state_dict,
           "Parameters and buffers as numpy arrays, in torch's names and layouts; copies.")
      .def("load_state_dict", &load_state_dict, arg("state_dict"),
           "Takes parameters and buffers, of numpy or torch. Where one is missing, unknown or of another "
           "shape nothing changes.")
      .def(
          "amax",
          [](Network& self) {
            nb::dict out;
            for (const auto& entry : named_quantizers(self.module()))
              out[entry.name.c_str()] = Call{"amax"}.give(
                  entry.quantizer->amax().defined() ? entry.quantizer->amax().clone() : Tensor());
            return out;
          },
          "The ranges of all quantizers by name; None where there is none.")
      .def("save", &Network::save, arg("path"), "A checkpoint, as the command writes and reads it.")
      .def("export", &export_model, arg("path"), arg("target") = "ort", arg("opset") = 0,
           arg("emulate") = false,
           "Writes an ONNX file, whose name ends in .onnx, of QuantizeLinear and DequantizeLinear nodes, "
           "live batch norms folded into "
           "it; "
           "the model stays as it is.")
      .def_prop_ro("quantized", &Network::quantized)
      .def_prop_ro("sample_shape",
                   [](const Network& self) { return nb::tuple(nb::cast(self.identity().sample_shape)); })
      .def_prop_ro("classes", [](const Network& self) { return self.identity().classes; })
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
      "A built-in model (builtin_models() names them) or a model file, for samples of that shape.");
  m.def(
      "load", [](const std::string& path) { return unlocked([&] { return load_network(path); }); },
      arg("path"), "The model of a checkpoint or of an ONNX file.");
  m.def("builtin_models", &builtin_models, "The names of the models that come with the library.");
  m.def("presets", &QuantConfig::preset_names, "The names that quantize takes.");
}

}  // namespace fq::python
