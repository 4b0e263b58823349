#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "bindings.h"
#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/device.h"
#include "fakequant/core/ops/operators.h"

namespace {

/// Returns the text that the command prints for --version after its name.
std::string build_info() {
  return fmt::format("cpu, codes multiplied as {}", fq::cpu::name(fq::cpu::best_exact_type()));
}

namespace nb = nanobind;
using fq::OperatorOption, fq::OperatorSchema;

/// Returns the default of an option, or None if the option is required.
nb::object option_default(const OperatorOption& option) {
  if (option.is_required()) return nb::none();
  if (option.is_choice()) return nb::cast(option.choices[0]);
  return option.is_integer ? nb::cast(static_cast<int>(option.fallback)) : nb::cast(option.fallback);
}

// Row of the operator table for fakequant.torch, which replaces calls of torch by these operators.
nb::dict operator_row(const OperatorSchema& row) {
  nb::list options;
  for (const OperatorOption& option : row.options()) {
    nb::dict out;
    out["name"] = option.name;
    out["default"] = option_default(option);
    out["torch"] = option.torch;
    options.append(out);
  }
  nb::dict out;
  out["name"] = row.name;
  out["inputs"] = row.inputs;
  out["options"] = options;
  // The row has the names of torch separated by spaces.
  out["torch"] = nb::cast(row.torch).attr("split")();
  out["torch_module"] = row.torch_module;
  return out;
}

nb::list operators() {
  nb::list rows;
  for (const OperatorSchema& row : fq::operator_table()) rows.append(operator_row(row));
  return rows;
}

}  // namespace

NB_MODULE(_fakequant, module) {
  nanobind::set_leak_warnings(false);  // objects that live until the end of a script are not leaks
  module.attr("__version__") = FAKEQUANT_VERSION;
  module.doc() = "The compiled library of fakequant.";
  // Later parts extend classes and submodules of earlier ones, so the order matters: errors and tensors come
  // first, and Model before the parts that add functions to it.
  fq::python::bind_interpreter_lock(module);
  fq::python::bind_errors(module);
  fq::python::bind_warnings(module);
  fq::python::bind_tensor(module);
  module.def("build_info", &build_info,
             "Returns the type in which this build multiplies codes on this machine: \"cpu, codes multiplied "
             "as s8\".");
  module.def("cuda_device_count", &fq::cuda_device_count,
             "Returns the number of GPUs that this build can use. 0 in builds without CUDA.");
  module.def("operators", &operators,
             "Returns the operator table: a dict for each operator with its name, number of inputs, options, "
             "and names in torch. `inputs` is 0 if the number varies or the operator has weights.");
  fq::python::bind_modelopt(module);
  fq::python::bind_pytorch_quantization(module);
  fq::python::bind_torch_ref(module);
  fq::python::bind_torchao(module);
  fq::python::bind_torchao_float(module);
  fq::python::bind_engines(module);
  fq::python::bind_quantizer(module);
  fq::python::bind_ranks(module);
  fq::python::bind_interrupts(module);
  fq::python::bind_datasets(module);
  fq::python::bind_model(module);
  fq::python::bind_compression(module);
  fq::python::bind_training(module);
  fq::python::bind_fitting(module);
  fq::python::bind_defaults(module);
  fq::python::bind_inspection(module);
  fq::python::bind_recording(module);
  fq::python::bind_sensitivity(module);
}
