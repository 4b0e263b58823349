#include <nlohmann/json.hpp>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "fakequant/calib/calibrator.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/error.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/network/network.h"
#include "graded.h"

namespace fq::python {
namespace {

using nb::arg, nb::none;

// Fields have the names of ModelOpt. JSON is the one parser for all ways to make a descriptor.
std::string kwargs_json(const nb::kwargs& fields) {
  return nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(fields));
}

nb::object descriptor_dict(const QuantDescriptor& descriptor) {
  return nb::module_::import_("json").attr("loads")(descriptor.to_json());
}

void bind_descriptor(nb::module_& m) {
  nb::class_<QuantDescriptor>(
      m, "QuantDescriptor",
      "Format of a quantizer: num_bits (8, or (4, 3)), axis, block_sizes, amax, unsigned, narrow_range, "
      "calib_method, .., with the names of ModelOpt. A value: equal descriptors have equal hashes.")
      .def("__init__",
           [](QuantDescriptor* self, const nb::kwargs& fields) {
             // nanobind gives uninitialised memory for self.
             new (self) QuantDescriptor(QuantDescriptor::from_json(kwargs_json(fields)));
           })
      .def("dict", &descriptor_dict, "Returns the fields that differ from their defaults.")
      .def_static(
          "from_json", [](const std::string& text) { return QuantDescriptor::from_json(text); }, arg("text"),
          "Returns the descriptor of a JSON text. Raises ArgumentError for an unknown field and an invalid "
          "value.")
      .def("to_json", &QuantDescriptor::to_json, "Returns the descriptor as JSON text.")
      .def(
          "__eq__",
          [](const QuantDescriptor& a, nb::handle b) {
            return nb::isinstance<QuantDescriptor>(b) && a == nb::cast<const QuantDescriptor&>(b);
          },
          arg("other"))
      // Equal descriptors have the same JSON text, with the fields in a fixed order.
      .def("__hash__", [](const QuantDescriptor& d) { return std::hash<std::string>()(d.to_json()); })
      .def("__reduce__",
           [](nb::object self) {
             return nb::make_tuple(self.type().attr("from_json"), nb::make_tuple(self.attr("to_json")()));
           })
      .def("__repr__", [](const QuantDescriptor& d) { return "QuantDescriptor" + to_string(d); });
  m.attr("ScaledQuantDescriptor") = m.attr("QuantDescriptor");
}

void bind_calibrator(nb::module_& m) {
  nb::class_<Calibrator>(m, "Calibrator", "Collects batches and computes amax.")
      .def(
          "collect",
          [](Calibrator& self, nb::object x) {
            const Tensor input = Call{"collect"}.tensor(x, "x");
            unlocked([&] {
              self.collect(input);
              return 0;
            });
          },
          arg("x"), "Adds a batch.")
      .def(
          "compute_amax",
          [](const Calibrator& self, const std::string& method, double percentile, nb::object num_bits,
             bool is_unsigned, int stride, int start_bin) {
            const Call call{"compute_amax"};
            // Positional: the order of the fields of AmaxOptions.
            AmaxOptions options{method,      percentile, call.num_bits(num_bits, "num_bits"),
                                is_unsigned, stride,     start_bin};
            return call.give(unlocked([&] { return self.compute_amax(options); }));
          },
          arg("method") = "", arg("percentile") = 99.99, arg("num_bits") = 8, arg("unsigned") = false,
          arg("stride") = 1, arg("start_bin") = 128, "Returns amax of the collected batches.")
      .def("reset", &Calibrator::reset, "Forgets all batches.")
      .def_prop_ro(
          "method", [](const Calibrator& self) { return std::string(self.method()); }, "Name of the method.")
      .def_prop_ro("empty", &Calibrator::empty, "Whether no batch was collected.");
  m.def(
      "make_calibrator",
      [](const std::string& method, std::vector<int> axis, int num_bins, bool skip_zeros, double momentum,
         const std::string& grid) {
        // The two libraries place the edges of histogram bins differently (golden/README.md, calibrators.h5).
        if (grid != "torch" && grid != "numpy")
          throw ArgumentError("[make_calibrator] grid is '" + grid + "': torch and numpy are allowed");
        CalibratorOptions options;
        options.axis = Axes(std::move(axis));
        options.num_bins = num_bins;
        options.skip_zeros = skip_zeros;
        options.momentum = momentum;
        options.grid = grid == "torch" ? HistogramGrid::torch : HistogramGrid::numpy;
        return make_calibrator(method, options);
      },
      arg("method") = "max", arg("axis") = std::vector<int>{}, arg("num_bins") = 2048,
      arg("skip_zeros") = false, arg("momentum") = 0.99, arg("grid") = "torch",
      "Returns the calibrator of a method: max, percentile, entropy, mse, octav, one_pass, .. `grid` sets "
      "the bins of a histogram: \"torch\" as torch.histc, \"numpy\" as numpy.histogram.");
}

// Calls return dequantized values without a gradient. Training goes through Model or fakequant.torch.
void bind_tensor_quantizer(nb::module_& m) {
  nb::class_<TensorQuantizer>(m, "TensorQuantizer", "Observes and quantizes a tensor.")
      .def(
          "__init__",
          [](TensorQuantizer* self, nb::object descriptor) {
            new (self) TensorQuantizer(descriptor.is_none() ? QuantDescriptor()
                                                            : nb::cast<QuantDescriptor>(descriptor));
          },
          arg("descriptor") = none())
      .def(
          "__call__",
          [](TensorQuantizer& self, nb::object x) {
            const Call call{"TensorQuantizer", x};
            const Tensor input = call.tensor(x, "x");
            return call.give(unlocked([&] {
              const NoGrad quiet;
              return self(Variable(input)).tensor();
            }));
          },
          arg("x"), "Returns the dequantized values.")
      .def(
          "collect",
          [](TensorQuantizer& self, nb::object x) {
            // Without `like`, a torch tensor is detached: the calibrator may keep the memory
            // (foreign_array.h).
            self.observer().collect(Call{"collect"}.tensor(x, "x"));
          },
          arg("x"), "Adds a batch for calibration.")
      .def(
          "load_calib_amax", [](TensorQuantizer& self) { self.load_calibrated_amax(); },
          "Sets amax from the collected batches.")
      .def_prop_rw(
          "amax",
          [](const TensorQuantizer& self) {
            // A copy, because writing to the range in place would not update the grid.
            return Call{"amax"}.give(self.amax().defined() ? self.amax().clone() : Tensor());
          },
          [](TensorQuantizer& self, nb::object amax) { self.set_amax(Call{"amax"}.host_amax(amax, "amax")); },
          "Range: a scalar, or one value for each channel or block. None before calibration. Raises "
          "ArgumentError for a value that is negative or not finite, and for another number of values.")
      .def_prop_ro(
          "scale", [](const TensorQuantizer& self) { return Call{"scale"}.give(self.scale().clone()); },
          "Scale of the grid. Raises ArgumentError without a range, and if each input sets its range.")
      .def_prop_rw(
          "enabled", [](const TensorQuantizer& self) { return self.params().enabled; },
          &TensorQuantizer::set_enabled, "Whether the quantizer is on.")
      .def_prop_ro("descriptor", &TensorQuantizer::descriptor, "Format of the quantizer.")
      .def("__repr__",
           [](const TensorQuantizer& self) { return "TensorQuantizer(" + self.describe() + ")"; });
}

}  // namespace

void bind_quantizer(nb::module_& m) {
  bind_descriptor(m);
  bind_calibrator(m);
  bind_tensor_quantizer(m);
}

namespace {

nb::list compress_weights(Network& self) {
  const auto weights = unlocked([&] { return compress(self.module()); });
  nb::list out;
  for (const auto& weight : weights) {
    nb::dict row;
    row["name"] = weight.name;
    row["format"] = to_string(weight.format);
    row["elements"] = weight.elements;
    row["code_bytes"] = weight.code_bytes;
    row["scale_bytes"] = weight.scale_bytes;
    out.append(row);
  }
  return out;
}

}  // namespace

// Added to the class Model, which bind_model made.
void bind_compression(nb::module_& m) {
  auto model = nb::borrow<nb::class_<Network>>(m.attr("Model"));
  model
      .def("compress", &compress_weights,
           "Replaces the weights of a calibrated model by packed codes, in memory and in files of `save`: "
           "4-bit weights need an eighth of the bytes. The outputs keep their bits, and the weights cannot "
           "be trained. Returns a dict for each weight: name, format, elements, code_bytes, scale_bytes. "
           "Raises ArgumentError, without a change, if a weight cannot be packed.")
      .def(
          "decompress",
          [](Network& self) {
            unlocked([&] {
              decompress(self.module());
              return true;
            });
          },
          "Replaces packed codes by float weights with the same values, which can be trained.")
      .def_prop_ro(
          "is_compressed", [](const Network& self) { return is_compressed(self.module()); },
          "Whether at least one weight is packed codes.");
}

}  // namespace fq::python
