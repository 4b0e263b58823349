#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/device.h"

namespace {

/// What the command prints for --version, behind its name.
std::string build_info() {
  return fmt::format("cpu, codes multiplied as {}", fq::cpu::name(fq::cpu::best_exact_type()));
}

}  // namespace

NB_MODULE(_fakequant, module) {
  nanobind::set_leak_warnings(false);  // what a script still holds at its end is no leak
  module.attr("__version__") = FAKEQUANT_VERSION;
  module.doc() = "The library of fakequant.";
  fq::python::bind_interpreter_lock(module);
  fq::python::bind_errors(module);
  fq::python::bind_warnings(module);
  fq::python::bind_tensor(module);
  module.def("build_info", &build_info,
             "What this build and machine multiply codes with: \"cpu, codes multiplied as s8\".");
  module.def("cuda_device_count", &fq::cuda_device_count,
             "GPUs that this build and machine can use: 0 in builds without CUDA.");
  fq::python::bind_modelopt(module);
  fq::python::bind_pytorch_quantization(module);
  fq::python::bind_torch_ref(module);
  fq::python::bind_torchao(module);
  fq::python::bind_torchao_float(module);
  fq::python::bind_engines(module);
  fq::python::bind_quantizer(module);
  fq::python::bind_operators(module);
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
