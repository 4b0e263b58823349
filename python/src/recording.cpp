#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/network/network.h"
#include "graded.h"

namespace fq::python {
namespace {

using nb::arg;

/// Converts bool, int, float, str, or a sequence of numbers.
/// bool before int, because it is a subclass. A list of whole numbers keeps its type.
NodeOption to_option(nb::handle value, const std::string& name) {
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::int_>(value)) return nb::cast<std::int64_t>(value);
  if (nb::isinstance<nb::float_>(value)) return nb::cast<double>(value);
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  if (std::vector<std::int64_t> whole; nb::try_cast(value, whole, false)) return whole;
  if (std::vector<double> numbers; nb::try_cast(value, numbers)) return numbers;
  throw ArgumentError(
      fmt::format("[model] the option '{}' is {}: use bool, int, float, str, or a list of numbers", name,
                  nb::cast<std::string>(nb::repr(value)).substr(0, 80)));
}

ModelNodes to_nodes(const nb::list& nodes) {
  ModelNodes out;
  for (const auto& entry : nodes) {
    const auto node = nb::cast<nb::dict>(entry);
    ModelNode& own = out.emplace_back();
    own.name = nb::cast<std::string>(node["name"]);
    own.type = nb::cast<std::string>(node["type"]);
    own.inputs = nb::cast<std::vector<std::string>>(node["inputs"]);
    for (const auto& [name, value] : nb::cast<nb::dict>(node["options"])) {
      const auto key = nb::cast<std::string>(name);
      own.options[key] = to_option(value, key);
    }
  }
  return out;
}

/// A forward pass whose backward pass can run once.
struct Recording {
  std::shared_ptr<Module> module;
  std::vector<Variable> inputs;
  Variable y;
  bool listed = false;  ///< whether gradients of the inputs are a list
};

/// Returns an output that the caller may write to: a copy if the backward pass reads the output too.
/// The caller's torch tensor shares the memory. Writing to it in place would change what backward reads.
Tensor writable_output(const Tensor& y) {
  constexpr long kOwners = 2;  // this handle and the Variable
  return y.storage().use_count() > kOwners ? y.clone() : y;
}

nb::tuple record(Network& self, nb::object x, bool wants_gradient, std::uint64_t seed, std::uint64_t step) {
  const Call call{"model", x};
  const Tensor input = Call{"model"}.tensor(x, "x");  // kept for the backward pass
  if (!input.defined()) throw ArgumentError("[model] x is None: use an array");
  Recording out{self.shared_module(), {Variable(input, wants_gradient)}, {}};
  const Tensor y = unlocked([&] {
    // Dropout draws from (seed, step) alone, so a recomputed forward pass has the same mask.
    const RandomScope random(seed, step);
    out.y = self.module()(out.inputs.front());
    return writable_output(out.y.tensor());
  });
  return nb::make_tuple(call.give(y), out);
}

std::vector<Variable> layer_inputs(const nb::list& given, const std::vector<bool>& wants_gradient) {
  if (given.size() != wants_gradient.size())
    throw ArgumentError(fmt::format(
        "[record_layer] inputs has {} arrays and wants_gradient {} values: use one value for each array",
        given.size(), wants_gradient.size()));
  std::vector<Variable> out;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string name = fmt::format("inputs[{}]", i);
    const Tensor input = Call{"record_layer"}.tensor(nb::borrow(given[i]), name);
    out.push_back(input.defined() ? Variable(input, wants_gradient[i]) : Variable());
  }
  // Optional inputs at the end, for example a mask, are left out.
  while (!out.empty() && !out.back().defined()) out.pop_back();
  return out;
}

nb::tuple record_layer(Network& self, const std::string& layer, const nb::list& inputs,
                       const std::vector<bool>& wants_gradient) {
  if (inputs.size() == 0) throw ArgumentError("[record_layer] inputs is empty: use at least one array");
  const Call call{"record_layer", nb::borrow(inputs[0])};
  Recording out{self.shared_module(), layer_inputs(inputs, wants_gradient), {}, true};
  const Tensor y = unlocked([&] {
    out.y = self.module().at(layer)(out.inputs);
    return writable_output(out.y.tensor());
  });
  return nb::make_tuple(call.give(y), out);
}

nb::object run_layer(Network& self, const std::string& layer, const nb::list& inputs) {
  if (inputs.size() == 0) throw ArgumentError("[run_layer] inputs is empty: use at least one array");
  const auto given = layer_inputs(inputs, std::vector<bool>(inputs.size(), false));
  return Call{"run_layer", nb::borrow(inputs[0])}.give(unlocked([&] {
    const NoGrad quiet;
    return self.module().at(layer)(given).tensor();
  }));
}

// A quantizer that has seen only zeros grows its range with the first batches of training.
std::vector<std::string> growing_quantizers(Network& self) {
  std::vector<std::string> out;
  for (const auto& entry : named_quantizers(self.module()))
    if (entry.quantizer->params().enabled && entry.quantizer->range().grows()) out.push_back(entry.name);
  return out;
}

TensorQuantizer& find_quantizer(Network& self, const std::string& name) {
  return dynamic_cast<TensorQuantizer&>(self.module().at(name));
}

/// Returns the ranges of each quantizer, and 1 for each range that no longer grows. Processes that train one
/// model take the maximum of these numbers.
nb::object range_growth(Network& self, const std::vector<std::string>& names) {
  std::vector<float> out;
  for (const auto& name : names) {
    const RangeGrowth growth = find_quantizer(self, name).range().growth();
    out.insert(out.end(), growth.amax.begin(), growth.amax.end());
    // Both kinds of numbers merge by their maximum over processes: the largest range, and "stopped" if one
    // process has stopped.
    for (const float grows : growth.growing) out.push_back(1 - grows);
  }
  return Call{"range_growth"}.give(Tensor::from(out, {static_cast<std::int64_t>(out.size())}));
}

void set_range_growth(Network& self, const std::vector<std::string>& names, nb::object values) {
  const Tensor given = Call{"set_range_growth"}.tensor(values, "values");
  const auto all = given.to_vector<float>();
  // The order of `range_growth`: for each quantizer its ranges, then its flags.
  auto next = all.begin();
  for (const auto& name : names) {
    TensorQuantizer& q = find_quantizer(self, name);
    RangeGrowth growth = q.range().growth();
    for (float& amax : growth.amax) amax = *next++;
    for (float& grows : growth.growing) grows = 1 - *next++;
    q.set_growth(growth);
  }
}

/// Returns (grad_x, or a list of gradients for a layer, {name: gradient}). A missing gradient is None.
/// Gradients that the parameters had before are lost.
nb::tuple backward(Recording& self, nb::object grad_y) {
  const Call call{"backward", grad_y};
  const Tensor seed = call.tensor(grad_y, "grad_y");
  // torch accumulates gradients. The library only computes the gradients of one backward pass.
  self.module->zero_grad();
  unlocked([&] {
    self.y.backward(seed);
    return 0;
  });
  nb::dict gradients;
  for (const auto& [name, parameter] : self.module->named_parameters()) {
    // a range of zeros has no gradient, and DistributedDataParallel waits for a gradient of every parameter
    const bool waits = name.ends_with(".amax") && !parameter.grad().defined();
    gradients[name.c_str()] = call.give(
        waits ? Tensor::zeros(parameter.shape(), DType::f32, parameter.device()) : parameter.grad());
  }
  self.module->zero_grad();
  nb::list of_inputs;
  for (const Variable& x : self.inputs) of_inputs.append(call.give(x.requires_grad() ? x.grad() : Tensor()));
  return nb::make_tuple(self.listed ? nb::object(of_inputs) : nb::borrow(of_inputs[0]), gradients);
}

/// Lets parameters use the memory of the caller's arrays. A new array replaces the earlier one. `written`
/// says that the values may have changed, so that cached codes are recomputed.
void share_parameters(Network& self, const nb::dict& arrays, bool written) {
  const Call call{"share_parameters"};
  for (auto [name, parameter] : self.module().named_parameters()) {
    if (!arrays.contains(name.c_str())) continue;
    const Tensor given = call.tensor(nb::borrow(arrays[name.c_str()]), name);
    if (!given.defined() || given.dtype() != parameter.tensor().dtype() ||
        given.layout() != Layout::row_major || given.shape() != parameter.shape())
      throw ArgumentError(fmt::format("[share_parameters] '{}' is {}, the model has {}", name,
                                      given.defined() ? given.describe() : "None",
                                      parameter.tensor().describe()));
    // Usually the memory has not changed since the last call.
    if (given.raw() != parameter.tensor().raw()) parameter.set_tensor(given);
    // mutable_raw() increments the version of the storage, which makes cached codes stale.
    if (written) static_cast<void>(parameter.mutable_tensor().mutable_raw());
  }
}

nb::dict buffers(const Network& self, nb::object like) {
  nb::dict out;
  for (const auto& [name, buffer] : self.module().named_buffers())
    out[name.c_str()] = Call{"buffers", like}.give(buffer.clone());
  return out;
}

/// Does not write to buffers with the same bits, because backward passes may still read them.
void load_buffers(Network& self, const nb::dict& arrays) {
  for (auto [name, buffer] : self.module().named_buffers()) {
    const Tensor given = Call{"load_buffers"}.tensor(nb::borrow(arrays[name.c_str()]), name);
    if (!bitwise_equal(given, buffer)) buffer.copy_from(given.reshape(buffer.shape()));
  }
}

nb::tuple quantizer_state(Network& self) {
  StateDict state;
  for (const auto& entry : named_quantizers(self.module())) entry.quantizer->save(state, entry.name);
  nb::dict tensors;
  for (const auto& [name, tensor] : state.tensors())
    tensors[name.c_str()] = Call{"quantizer_state"}.give(tensor.clone());
  return nb::make_tuple(tensors, state.attributes().dump());
}

void load_quantizer_state(Network& self, const nb::dict& tensors, const std::string& attributes) {
  StateDict state;
  for (const auto& [name, array] : tensors) {
    const auto key = nb::cast<std::string>(name);
    // A copy, because quantizers keep the tensors.
    state.set(key, Call{"load_quantizer_state"}.host(array, key).clone());
  }
  const auto parsed = nlohmann::json::parse(attributes);
  for (const auto& [name, value] : parsed.items()) state.set_attribute(name, value);
  for (const auto& entry : named_quantizers(self.module()))
    // A state may be of a part of the network.
    if (state.has_sub(entry.name)) entry.quantizer->load(state, entry.name);
}

}  // namespace

void bind_recording(nb::module_& m) {
  nb::class_<WayBack>(m, "WayBack", "Backward pass of a function.")
      .def(
          "__call__",
          [](const WayBack& self, nb::object grad_y) {
            const Call call{"backward", grad_y};
            const Tensor seed = call.tensor(grad_y, "grad_y");
            if (!seed.defined()) throw ArgumentError("[backward] grad_y is None: use an array");
            return call.give(unlocked([&] { return self(seed); }));
          },
          arg("grad_y"), "Returns the gradient of x.");
  nb::class_<Recording>(m, "Recording", "A forward pass whose backward pass can run once.")
      .def("backward", &backward, arg("grad_y"),
           "Returns (gradient of x, {name of a parameter: gradient}). For a layer, the first item is a list "
           "with the gradient of each input. A missing gradient is None.");
  auto model = nb::borrow<nb::class_<Network>>(m.attr("Model"));
  model
      .def("record", &record, arg("x"), arg("wants_gradient") = false, arg("seed") = 0, arg("step") = 0,
           "Returns (outputs, Recording) for a batch. Dropout draws from (seed, step).")
      .def("record_layer", &record_layer, arg("layer"), arg("inputs"), arg("wants_gradient"),
           "Returns (outputs, Recording) of one layer, by its name. `inputs` is a list of arrays; the last "
           "ones may be None.")
      .def("run_layer", &run_layer, arg("layer"), arg("inputs"),
           "Returns the outputs of a layer, without a recording.")
      .def("share_parameters", &share_parameters, arg("arrays"), arg("written") = true,
           "Lets parameters, by name, use the memory of arrays, float32 and contiguous. The model may write "
           "to them. Call it again after the arrays were written to.")
      .def("growing_quantizers", &growing_quantizers,
           "Returns the names of quantizers whose ranges were zero and grow in training.")
      .def("range_growth", &range_growth, arg("names"),
           "Returns the ranges of these quantizers, and 1 for each range that no longer grows, as one array.")
      .def("set_range_growth", &set_range_growth, arg("names"), arg("values"),
           "Sets the ranges and flags from the array of range_growth.")
      .def("buffers", &buffers, arg("like"), "Returns copies of the running statistics by name.")
      .def("load_buffers", &load_buffers, arg("arrays"), "Sets running statistics by name.")
      .def(
          "parameter_names",
          [](const Network& self) {
            std::vector<std::string> names;
            for (const auto& [name, parameter] : self.module().named_parameters()) names.push_back(name);
            return names;
          },
          "Returns the names of the parameters.")
      .def("quantizer_state", &quantizer_state,
           "Returns (arrays, JSON text) of all quantizers: settings, ranges and calibration data.")
      .def("load_quantizer_state", &load_quantizer_state, arg("arrays"), arg("attributes"),
           "Sets the quantizers that the state names, from the result of quantizer_state.");
  m.def(
      "model_of_nodes",
      [](const nb::list& nodes, const std::vector<std::int64_t>& sample_shape, std::int64_t classes) {
        // Read before the lock is released, because the nodes are Python objects.
        ModelNodes list = to_nodes(nodes);
        return unlocked([&] {
          return Network::create(Identity{.model = ModelSpec("model", std::move(list)),
                                          .sample_shape = Shape(sample_shape),
                                          .classes = classes});
        });
      },
      arg("nodes"), arg("sample_shape"), arg("classes") = 0,
      "Returns a model of nodes for samples of a shape. A node is a dict of name, type, options and inputs, "
      "as in a model file.");
}

}  // namespace fq::python
