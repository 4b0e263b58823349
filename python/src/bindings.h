#pragma once

/// Functions that bind one part of the module each. Each source file has one part.

#include "array.h"

namespace fq::python {

void bind_errors(nb::module_& module);
void bind_warnings(nb::module_& module);
void bind_modelopt(nb::module_& module);
void bind_modelopt_qtensor(nb::module_& module);
void bind_pytorch_quantization(nb::module_& module);
void bind_torch_ref(nb::module_& module);
void bind_torchao(nb::module_& module);
void bind_torchao_float(nb::module_& module);
void bind_engines(nb::module_& module);
void bind_quantizer(nb::module_& module);
void bind_model(nb::module_& module);
void bind_compression(nb::module_& module);
void bind_datasets(nb::module_& module);
void bind_interpreter_lock(nb::module_& module);
void bind_interrupts(nb::module_& module);
void bind_training(nb::module_& module);
void bind_fitting(nb::module_& m);
void bind_defaults(nb::module_& m);
void bind_inspection(nb::module_& m);
void bind_ranks(nb::module_& module);
void bind_recording(nb::module_& module);
void bind_sensitivity(nb::module_& module);

}  // namespace fq::python
